// Plain SVG figures of bench rows: bars of speed, stacked bars of time per token, speed over depth.
//
// One figure is a column of panels on a white ground, 860 units wide, readable at the width of a
// README. No scripts, no fonts of its own, text as text. Numbers are drawn where they belong, so
// that no figure needs its table.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace spk {

struct Bar {
  std::string label;
  double value = 0;
  std::string note;   // after the value: "+41 %"
  bool pale = false;  // simulated
};

// One horizontal bar made of parts, with a mark where the roof is.
struct Stack {
  std::string label;
  std::vector<double> parts;
  double roof = 0;  // 0: none
};

struct Curve {
  std::string name;
  std::vector<double> x, y;
};

class Figure {
 public:
  Figure(std::string title, std::string subtitle)
      : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

  void bars(const std::string& title, const std::string& unit, const std::vector<Bar>& bars);
  // `names`: of the parts, in the order of Stack::parts; `roof`: what the mark means.
  void stacks(const std::string& title, const std::string& unit,
              const std::vector<std::string>& names, const std::string& roof,
              const std::vector<Stack>& stacks);
  void curves(const std::string& title, const std::string& x, const std::string& y,
              const std::vector<Curve>& curves);
  std::string svg() const;

 private:
  void heading(const std::string& title);
  void text(double x, double y, const std::string& text, const char* attributes);
  void rect(double x, double y, double width, double height, const char* attributes);

  std::string title_, subtitle_;
  std::string body_;
  double y_ = 74;  // where the next panel begins
};

// A step of 1, 2 or 5 times a power of ten that cuts `high` into at most `most` pieces.
double nice_step(double high, int most);

}  // namespace spk

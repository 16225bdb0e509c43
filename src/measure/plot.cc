#include "measure/plot.h"

#include "base/error.h"
#include "measure/show.h"

#include <algorithm>
#include <cmath>

namespace spk {
namespace {

constexpr double kWidth = 860, kLeft = 210, kRight = 130, kMargin = 28;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kRow = 34, kBar = 22;
// Told apart by people who do not see red and green, and on paper.
constexpr const char* kColours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                    "#56b4e9", "#d55e00", "#999999"};
constexpr const char* kInk = "#1f2328";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// Short and plain: 3 significant digits or whole.
std::string shown(double value) {
  if (value == 0) return "0";
  const double size = std::fabs(value);
  return fixed(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}
std::string axis_number(double value) {
  std::string s = fixed(value, 4);
  s.erase(s.find_last_not_of('0') + 1);
  if (s.back() == '.') s.pop_back();
  return s;
}

const char* colour(size_t i) { return kColours[i % std::size(kColours)]; }

}  // namespace

double nice_step(double high, int most) {
  if (!(high > 0)) return 1;
  double step = std::pow(10, std::floor(std::log10(high / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (high / (step * factor) <= most) return step * factor;
  }
  return step * 10;
}

void Figure::text(double x, double y, const std::string& content, const char* attributes) {
  body_ += cat("<text x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" ", attributes, ">",
               escaped(content), "</text>\n");
}

void Figure::rect(double x, double y, double width, double height, const char* attributes) {
  body_ += cat("<rect x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" width=\"",
               fixed(std::max(width, 0.0), 1), "\" height=\"", fixed(height, 1), "\" ", attributes,
               "/>\n");
}

void Figure::heading(const std::string& title) {
  y_ += 22;
  text(kMargin, y_, title, "class=\"panel\"");
  y_ += 14;
}

void Figure::bars(const std::string& title, const std::string& unit, const std::vector<Bar>& bars) {
  heading(title + ", " + unit);
  double high = 0;
  for (const Bar& bar : bars) high = std::max(high, bar.value);
  for (const Bar& bar : bars) {
    const double width = high > 0 ? kPlot * bar.value / high : 0;
    text(kLeft - 10, y_ + 16, bar.label, "class=\"label\"");
    rect(
        kLeft, y_, width, kBar,
        bar.pale ? "rx=\"2\" fill=\"#0072b2\" fill-opacity=\"0.55\"" : "rx=\"2\" fill=\"#0072b2\"");
    const std::string note = bar.note.empty() ? "" : "  " + bar.note;
    text(kLeft + width + 8, y_ + 16, shown(bar.value) + note, "class=\"value\"");
    y_ += kRow;
  }
  y_ += 8;
}

void Figure::stacks(const std::string& title, const std::string& unit,
                    const std::vector<std::string>& names, const std::string& roof,
                    const std::vector<Stack>& stacks) {
  heading(title + ", " + unit);
  double x = kLeft;
  for (size_t i = 0; i < names.size(); ++i) {
    rect(x, y_, 11, 11, cat("fill=\"", colour(i), "\"").c_str());
    text(x + 16, y_ + 10, names[i], "class=\"key\"");
    x += 16 + 7.0 * static_cast<double>(names[i].size()) + 18;
  }
  rect(x, y_ - 1, 3, 13, "fill=\"#1f2328\"");
  text(x + 9, y_ + 10, roof, "class=\"key\"");
  y_ += 24;
  double high = 0;
  for (const Stack& s : stacks) {
    double sum = 0;
    for (const double part : s.parts) sum += part;
    high = std::max({high, sum, s.roof});
  }
  for (const Stack& s : stacks) {
    text(kLeft - 10, y_ + 16, s.label, "class=\"label\"");
    double at = kLeft, sum = 0;
    for (size_t i = 0; i < s.parts.size(); ++i) {
      const double width = high > 0 ? kPlot * s.parts[i] / high : 0;
      rect(at, y_, width, kBar, cat("fill=\"", colour(i), "\"").c_str());
      at += width;
      sum += s.parts[i];
    }
    text(at + 8, y_ + 16, shown(sum), "class=\"value\"");
    if (s.roof > 0)
      rect(kLeft + kPlot * s.roof / high - 1.5, y_ - 4, 3, kBar + 8, "fill=\"#1f2328\"");
    y_ += kRow;
  }
  y_ += 8;
}

void Figure::curves(const std::string& title, const std::string& x_name, const std::string& y_name,
                    const std::vector<Curve>& curves) {
  heading(title);
  constexpr double kHeight = 240, kAxis = 86;
  const double width = kWidth - kAxis - kRight;
  double high_x = 0, high_y = 0;
  for (const Curve& c : curves) {
    for (const double v : c.x) high_x = std::max(high_x, v);
    for (const double v : c.y) high_y = std::max(high_y, v);
  }
  const double step = nice_step(high_y, 5);
  const double top = step * std::ceil(high_y / step);
  const double base = y_ + 14 + kHeight;
  const auto px = [&](double v) { return kAxis + (high_x > 0 ? width * v / high_x : 0); };
  const auto py = [&](double v) { return base - (top > 0 ? kHeight * v / top : 0); };
  for (double v = 0; v <= top * 1.0001; v += step) {
    body_ += cat("<line x1=\"", fixed(kAxis, 1), "\" x2=\"", fixed(kAxis + width, 1), "\" y1=\"",
                 fixed(py(v), 1), "\" y2=\"", fixed(py(v), 1), "\" stroke=\"#d0d7de\"/>\n");
    text(kAxis - 8, py(v) + 4, axis_number(v), "class=\"label\"");
  }
  text(kAxis, y_ + 2, y_name, "class=\"key\"");
  const double step_x = nice_step(high_x, 8);
  for (double v = 0; v <= high_x * 1.0001; v += step_x)
    text(px(v), base + 18, axis_number(v), "class=\"tick\"");
  text(kAxis + width / 2, base + 38, x_name, "class=\"tick\"");
  for (size_t i = 0; i < curves.size(); ++i) {
    const Curve& c = curves[i];
    std::string points;
    for (size_t k = 0; k < c.x.size(); ++k)
      points += cat(k > 0 ? " " : "", fixed(px(c.x[k]), 1), ",", fixed(py(c.y[k]), 1));
    body_ += cat("<polyline fill=\"none\" stroke=\"", colour(i),
                 "\" stroke-width=\"2.5\" points=\"", points, "\"/>\n");
    for (size_t k = 0; k < c.x.size(); ++k)
      body_ += cat("<circle r=\"4\" fill=\"", colour(i), "\" cx=\"", fixed(px(c.x[k]), 1),
                   "\" cy=\"", fixed(py(c.y[k]), 1), "\"/>\n");
    if (!c.x.empty()) text(px(c.x.back()) + 10, py(c.y.back()) + 4, c.name, "class=\"value\"");
  }
  y_ = base + 52;
}

std::string Figure::svg() const {
  const double height = y_ + 14;
  std::string out =
      cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", fixed(kWidth, 0), " ",
          fixed(height, 0), "\" width=\"", fixed(kWidth, 0), "\" height=\"", fixed(height, 0),
          "\" role=\"img\" aria-label=\"", escaped(title_),
          "\">\n<style>text{font-family:'DejaVu Sans',",
          "'Segoe UI',Helvetica,Arial,sans-serif;fill:", kInk,
          "}.title{font-size:19px;font-weight:600}.sub{font-size:12px;fill:#59636e}",
          ".panel{font-size:14px;font-weight:600}.label{font-size:13px;text-anchor:end}",
          ".value{font-size:13px}.key{font-size:12px}.tick{font-size:12px;text-anchor:middle}</"
          "style>\n");
  out += cat("<rect width=\"", fixed(kWidth, 0), "\" height=\"", fixed(height, 0),
             "\" rx=\"8\" fill=\"#ffffff\"/>\n");
  out += cat("<text x=\"", fixed(kMargin, 0), "\" y=\"38\" class=\"title\">", escaped(title_),
             "</text>\n<text x=\"", fixed(kMargin, 0), "\" y=\"60\" class=\"sub\">",
             escaped(subtitle_), "</text>\n");
  return out + body_ + "</svg>\n";
}

}  // namespace spk

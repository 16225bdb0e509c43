// A tokenizer.json's regular expression, rewritten so that another engine means exactly the same by
// it.
//
// The file's pattern was written for the regex engine of the Hugging Face package (Oniguruma, Ruby
// syntax). Ours is PCRE2, whose Unicode tables are older and whose syntax differs in corners. Both
// differences vanish here:
//
//  - Every set of characters in the pattern (literal, class, \s, \p{...}, dot) becomes an explicit
//  set of code points out
//    of the measured table. Code points that no set tells apart share one CLASS, of which a pattern
//    has a few dozen, at most 256. The text is then one byte per character, its class, and the
//    pattern a pattern over bytes: no Unicode in the regex engine at all, and a class test is one
//    bit look-up instead of a walk through hundreds of ranges.
//  - Syntax that the engines read differently is rewritten ({n,m}+, {n}?, {,m}, ^, $) and what is
//  not known to be equal is
//    refused by name.
#pragma once

#include "text/unicode.h"

#include <string>
#include <string_view>

namespace spk {

struct RewrittenRegex {
  std::string pattern;   // over class bytes, for PCRE2 without UTF
  CodePointMap classes;  // code point -> class byte
};

// Throws Error (kInput) that names `where` and the construct.
RewrittenRegex rewrite_regex(std::string_view pattern, const std::string& where);

}  // namespace spk

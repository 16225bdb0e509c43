"""Worked arithmetic as text: exact fractions in, lines such as `34 x 26 = 680 + 204 = 884` out.

A small model computes reliably only what it can do digit by digit from left to right: a sum of two numbers, a product
by one digit, a division by one digit. Everything larger is written out here in such pieces.
"""
from fractions import Fraction


def tidy(value):
    """True when the value can be printed with at most two decimals."""
    return value >= 0 and 100 % Fraction(value).denominator == 0


def text(value):
    """Shortest decimal spelling of a fraction with a denominator that divides 100."""
    value = Fraction(value)
    if value.denominator == 1:
        return str(value.numerator)
    cents = abs(value * 100)
    digits = f"{cents.numerator // 100}.{cents.numerator % 100:02d}"
    return ("-" if value < 0 else "") + (digits[:-1] if digits.endswith("0") else digits)


def significant(value):
    return len(text(value).replace(".", "").strip("0"))


def product(a, b):
    """`a x b = partial products = running sums`, split by the digits of the shorter factor."""
    head = f"{text(a)} x {text(b)}"
    many, few = (a, b) if significant(a) >= significant(b) else (b, a)
    if significant(few) <= 1 or few in (11, 12, 25) and significant(many) <= 1:
        return f"{head} = {text(a * b)}"
    parts, scaled = [], int(few * 100)
    for place, digit in enumerate(reversed(str(scaled))):
        if digit != "0":
            parts.append(many * Fraction(int(digit) * 10 ** place, 100))
    return head + running_sum(parts[::-1]) if all(map(tidy, parts)) else f"{head} = {text(a * b)}"


def running_sum(parts):
    """` = p + q + r = pq + r = total`, two terms folded at a time."""
    out = ""
    while len(parts) > 1:
        out += " = " + " + ".join(text(p) for p in parts)
        parts = [parts[0] + parts[1]] + parts[2:]
    return f"{out} = {text(parts[0])}"


def quotient(a, b):
    """Direct for one significant digit, otherwise long division in whole multiples of the divisor."""
    head, result = f"{text(a)} / {text(b)}", Fraction(a) / b
    if significant(b) <= 1 or result.denominator != 1 or significant(result) <= 1 and result < 10:
        return f"{head} = {text(result)}"
    left, lines, digits = Fraction(a), [], str(result.numerator)
    for index, digit in enumerate(digits):
        part = int(digit) * 10 ** (len(digits) - 1 - index)
        if part:
            lines.append(f"{text(b)} x {part} = {text(b * part)}")
            left -= b * part
            if left:
                lines.append(f"{text(left)} left")
    return f"{head}: " + ", ".join(lines) + f", so {text(result)}"


def work(expression, env):
    """One worked line for an expression of the family language: terms joined by one kind of operator.

    `a + b + c`, `a - b - c`, `a * b * c`, `a / b`, `a % p` (p percent of a). Returns (line, value).
    """
    tokens = expression.split()
    values = [env[t] if t in env else Fraction(t) for t in tokens[0::2]]
    ops = tokens[1::2]
    if not ops:
        return text(values[0]), values[0]
    if all(op == "+" for op in ops):
        return " + ".join(map(text, values)) + running_tail(values), sum(values)
    if ops == ["*"]:
        return product(*values), values[0] * values[1]
    if ops == ["/"]:
        return quotient(*values), Fraction(values[0]) / values[1]
    if ops == ["%"]:
        whole = values[0] * values[1]
        return f"{product(*values)}, / 100 = {text(Fraction(whole) / 100)}", Fraction(whole) / 100
    line, total = text(values[0]), values[0]
    for op, value in zip(ops, values[1:]):      # mixed or repeated: fold left, writing each result
        line += f" {'x' if op == '*' else op} {text(value)}"
        total = {"+": total + value, "-": total - value, "*": total * value, "/": Fraction(total) / value}[op]
        line += f" = {text(total)}"
    return line, total


def running_tail(values):
    folded = [values[0] + values[1]] + list(values[2:])
    return running_sum(folded)

package canonicaltree

import (
	"bytes"
	"slices"
	"strconv"
)

// appendDecimal appends the encoding of a number literal in its normal form: a
// minus sign if it is negative, the digits without zeros at either end, and, if
// it is not zero, "e" and the exponent that makes them the number: -12.50 is
// -125e-1, 0.0 and -0 are 0. Work and space are proportional to the literal.
func appendDecimal(dst, literal []byte) []byte {
	start := len(dst)
	dst = AppendDecimal(append(dst, tagNumber), literal)
	size := len(dst) - start - 1
	if size < 24 {
		dst[start] |= byte(size)
		return dst
	}
	// A long number: make room for a longer head.
	var head [5]byte
	return slices.Replace(dst, start, start+1, appendHead(head[:0], tagNumber, size)...)
}

// AppendDecimal appends the normal form of a number literal, which is a literal too: its digits
// without zeros at either end, and the exponent that makes them the number.
func AppendDecimal(dst, literal []byte) []byte {
	start := len(dst)
	if literal[0] == '-' {
		dst = append(dst, '-')
		literal = literal[1:]
	}
	mantissa, exponent := literal, []byte(nil)
	if e := bytes.IndexAny(literal, "eE"); e >= 0 {
		mantissa, exponent = literal[:e], literal[e+1:]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))

	// Either part may be all zeros, so trim the two as if they were one.
	fraction = bytes.TrimRight(fraction, "0")
	shift := int64(-len(fraction))
	if len(fraction) == 0 {
		trimmed := bytes.TrimRight(whole, "0")
		shift = int64(len(whole) - len(trimmed))
		whole = trimmed
	}
	if whole = bytes.TrimLeft(whole, "0"); len(whole) == 0 {
		fraction = bytes.TrimLeft(fraction, "0")
	}
	if len(whole)+len(fraction) == 0 {
		return append(dst[:start], '0')
	}
	dst = append(append(dst, whole...), fraction...)
	return appendExponent(dst, exponent, shift)
}

// safeDigits is how many decimal digits fit into an int64 with room to add a
// shift, which is below 2^31.
const safeDigits = 18

// appendExponent appends "e" and the sum of exponent, a decimal number of any length or nothing,
// and shift. Nothing at all if that is 0.
func appendExponent(dst, exponent []byte, shift int64) []byte {
	negative := len(exponent) > 0 && exponent[0] == '-'
	digits := bytes.TrimLeft(bytes.TrimLeft(exponent, "+-"), "0")
	if negative {
		// Add to the magnitude. The sign comes back below.
		shift = -shift
	}
	high, low := digits[:max(0, len(digits)-safeDigits)], digits[max(0, len(digits)-safeDigits):]
	sum := shift
	var value int64
	for _, c := range low {
		value = value*10 + int64(c-'0')
	}
	sum += value
	if len(high) == 0 {
		if negative {
			sum = -sum
		}
		if sum == 0 {
			return dst
		}
		return strconv.AppendInt(append(dst, 'e'), sum, 10)
	}

	// The magnitude is at least 10^18 and the shift far below: the sign stays,
	// and at most 1 is carried between the parts.
	const unit = 1_000_000_000_000_000_000 // 10^safeDigits
	dst = append(dst, 'e')
	if negative {
		dst = append(dst, '-')
	}
	from := len(dst)
	dst = append(append(dst, '0'), high...)
	switch {
	case sum >= unit:
		sum -= unit
		addOne(dst[from:])
	case sum < 0:
		sum += unit
		subtractOne(dst[from:])
	}
	for power := int64(unit / 10); power > 0; power /= 10 {
		dst = append(dst, '0'+byte(sum/power%10))
	}
	return slices.Delete(dst, from, len(dst)-len(bytes.TrimLeft(dst[from:], "0")))
}

// addOne adds 1 to a decimal number that does not consist of nines alone.
func addOne(digits []byte) {
	i := len(digits) - 1
	for ; digits[i] == '9'; i-- {
		digits[i] = '0'
	}
	digits[i]++
}

// subtractOne takes 1 from a decimal number that does not consist of zeros alone.
func subtractOne(digits []byte) {
	i := len(digits) - 1
	for ; digits[i] == '0'; i-- {
		digits[i] = '9'
	}
	digits[i]--
}

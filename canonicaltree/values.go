package canonicaltree

// Values returns how many values data holds as JSON, and how many of them are elements or members
// of an outermost array or object, without parsing it and without memory. Both are never too low
// for a document that Parse takes, and hardly too high (by the number of empty arrays and
// objects). So a caller knows the cost of a Tree in advance: 32 bytes of index per value, up to
// three times that while it grows. data may hold a document per line. Its outer values are then
// those of all lines together.
func Values(data []byte) (all, outer int) {
	all = 1
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		if quoted {
			switch c {
			case '\\':
				i++
			case '"', '\n': // no string has a line end in it
				quoted = false
			}
			continue
		}
		switch c {
		case '"':
			quoted = true
		case ',':
			all++
			if depth == 1 {
				outer++
			}
		case '[', '{':
			all++
			if depth++; depth == 1 {
				outer++
			}
		case ']', '}':
			depth--
		}
	}
	return all, outer
}

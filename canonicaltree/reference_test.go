package canonicaltree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// referenceEncoding is a second, slow implementation of structural-hash.md:
// jsontext reads the document, the numbers go through math/big.
func referenceEncoding(doc []byte, numbers Numbers) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	encoding, err := referenceValue(d, numbers)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("behind the document: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	return encoding, nil
}

func referenceValue(d *jsontext.Decoder, numbers Numbers) ([]byte, error) {
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case 'n':
		return []byte{0xF6}, nil
	case 'f':
		return []byte{0xF4}, nil
	case 't':
		return []byte{0xF5}, nil
	case '"':
		return referenceHead(3, token.String()), nil
	case '0':
		literal := token.String()
		if numbers == Decimal {
			literal = referenceDecimal(literal)
		}
		return referenceHead(2, literal), nil
	case '[':
		count, body := 0, []byte(nil)
		for d.PeekKind() != ']' {
			element, err := referenceValue(d, numbers)
			if err != nil {
				return nil, err
			}
			count++
			body = append(body, element...)
		}
		_, err := d.ReadToken()
		return append(referenceLength(4, count), body...), err
	case '{':
		members := map[string][]byte{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			// The token is only valid until the next one is read.
			key := strings.Clone(name.String())
			if members[key], err = referenceValue(d, numbers); err != nil {
				return nil, err
			}
		}
		names := make([]string, 0, len(members))
		for name := range members {
			names = append(names, name)
		}
		slices.Sort(names)
		encoding := referenceLength(5, len(names))
		for _, name := range names {
			encoding = append(append(encoding, referenceHead(3, name)...), members[name]...)
		}
		_, err := d.ReadToken()
		return encoding, err
	}
	return nil, fmt.Errorf("token of kind %v", token.Kind())
}

func referenceHead(major byte, content string) []byte {
	return append(referenceLength(major, len(content)), content...)
}

func referenceLength(major byte, n int) []byte {
	head := []byte{major << 5}
	switch {
	case n < 24:
		head[0] |= byte(n)
	case n < 1<<8:
		head[0] |= 24
		head = append(head, byte(n))
	case n < 1<<16:
		head[0] |= 25
		head = binary.BigEndian.AppendUint16(head, uint16(n))
	default:
		head[0] |= 26
		head = binary.BigEndian.AppendUint32(head, uint32(n))
	}
	return head
}

func referenceDecimal(literal string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	e, c := new(big.Int), new(big.Int)
	e.SetString(strings.TrimPrefix(exponent, "+"), 10)
	e.Sub(e, big.NewInt(int64(len(fraction))))
	c.SetString(whole+fraction, 10)
	ten, rest := big.NewInt(10), new(big.Int)
	for c.Sign() != 0 {
		quotient, _ := new(big.Int).QuoRem(c, ten, rest)
		if rest.Sign() != 0 {
			break
		}
		c = quotient
		e.Add(e, big.NewInt(1))
	}
	if c.Sign() == 0 || e.Sign() == 0 {
		return c.String()
	}
	return c.String() + "e" + e.String()
}

// decodeEncoding turns an encoding back into canonical JSON. That it can shows
// that nothing is lost: two documents never share an encoding.
func decodeEncoding(encoding []byte) ([]byte, error) {
	doc, rest, err := decodeValue(nil, encoding)
	if err == nil && len(rest) > 0 {
		err = errors.New("trailing bytes")
	}
	return doc, err
}

func decodeValue(doc, e []byte) (_, rest []byte, err error) {
	if len(e) == 0 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	switch e[0] {
	case 0xF4:
		return append(doc, "false"...), e[1:], nil
	case 0xF5:
		return append(doc, "true"...), e[1:], nil
	case 0xF6:
		return append(doc, "null"...), e[1:], nil
	}
	major := e[0] >> 5
	n, e, err := decodeLength(e)
	if err != nil {
		return nil, nil, err
	}
	switch major {
	case 2, 3:
		if n > len(e) {
			return nil, nil, io.ErrUnexpectedEOF
		}
		if major == 3 {
			return AppendString(doc, string(e[:n])), e[n:], nil
		}
		return append(doc, e[:n]...), e[n:], nil
	case 4, 5:
		brackets := map[byte]string{4: "[]", 5: "{}"}[major]
		doc = append(doc, brackets[0])
		for i := range n {
			if i > 0 {
				doc = append(doc, ',')
			}
			if major == 5 {
				if doc, e, err = decodeValue(doc, e); err != nil {
					return nil, nil, err
				}
				doc = append(doc, ':')
			}
			if doc, e, err = decodeValue(doc, e); err != nil {
				return nil, nil, err
			}
		}
		return append(doc, brackets[1]), e, nil
	}
	return nil, nil, fmt.Errorf("major type %d", major)
}

func decodeLength(e []byte) (n int, rest []byte, err error) {
	short := int(e[0] & 31)
	if short < 24 {
		return short, e[1:], nil
	}
	width := 1 << (short - 24)
	if short > 26 || len(e) < 1+width {
		return 0, nil, io.ErrUnexpectedEOF
	}
	for _, b := range e[1 : 1+width] {
		n = n<<8 | int(b)
	}
	return n, e[1+width:], nil
}

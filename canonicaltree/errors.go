package canonicaltree

import "fmt"

// SyntaxError says why a document was refused and where. It holds nothing of the document's
// content, so it may be logged. [Parse], [ParseLimits] and [Sum] return it as a *SyntaxError.
// Find it with errors.As.
type SyntaxError struct {
	// Offset counts the bytes before the first one in error. At an
	// unexpected end it is the length of the document.
	Offset int64
	// Msg is a short phrase in lower case.
	Msg string
}

// Error returns the message and the offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("json: %s at offset %d", e.Msg, e.Offset)
}

// LimitError reports that parsing stopped at one of [Limits], whether or not the document is
// valid. It comes as a *LimitError. Find it with errors.As.
type LimitError struct {
	// Limit is "depth" or "size".
	Limit string
	// Max is the limit that was exceeded, in levels or in bytes.
	Max int64
	// Offset is where the first level beyond the limit opens. For "size" it is Max.
	Offset int64
}

// Error returns the limit, its value and the offset.
func (e *LimitError) Error() string {
	return fmt.Sprintf("json: %s limit of %d exceeded at offset %d", e.Limit, e.Max, e.Offset)
}

//go:build !crash

package crash

// Enabled reports whether the points are compiled in.
const Enabled = false

// At is passing a point at a place. The place may be empty.
func At(name, place string) {}

// Due is At for code that has something to do before it dies: true means do it
// now, then call Die. Ask Enabled first, so that the code is not compiled in.
func Due(name, place string) bool { return false }

// Die ends the process as at a point. It does not return.
func Die() {}

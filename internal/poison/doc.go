// Package poison overwrites memory that goes back to a pool, in builds with the race
// detector: a use of returned memory fails a test instead of reading the next owner's data.
package poison

// Fill overwrites b where Enabled.
func Fill(b []byte) {
	if Enabled {
		for i := range b {
			b[i] = 0xDB
		}
	}
}

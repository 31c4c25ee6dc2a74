package deliver

// KnowsNew reports whether the ends of all inboxes were read.
func (s *Stage) KnowsNew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if p.NewFrom == 0 {
			return false
		}
	}
	return true
}

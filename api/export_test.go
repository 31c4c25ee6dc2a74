package api

// Shares returns how many tokens a server remembers.
func Shares(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rates)
}

// MostConnections is for the tests of the listener.
func MostConnections() int { return mostConnections() }

package config

// inheritHistory fills in the bounds of the attempts of each service.
func (l *loader) inheritHistory() {
	main := l.config.History
	for i := range l.config.Projections {
		p, doc := &l.config.Projections[i], l.owner[i]
		for j := range p.Deliver {
			d := &p.Deliver[j]
			path := member(member(member(member("projections", p.Name), "deliver"), d.Name), "history")
			own := OwnHistory(main)
			switch _, answers := d.Sink.(Answering); {
			case d.History != nil:
				if doc.has(member(path, "keep")) {
					own.Keep = d.History.Keep
				}
			case !answers:
				own.Keep = 0
			}
			d.History = &own
			if _, file := d.Sink.(FileWriter); file && own.Keep > 0 {
				doc.faultKey(path, "is of no use for a file, which has what it was given in its lines", "no history")
			}
		}
	}
}

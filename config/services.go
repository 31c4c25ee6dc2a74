package config

// Service is one projection of one customer to one sink.
type Service struct {
	// Name is customer/projection@sink.
	Name string
	// Projection is its index in Config.Projections.
	Projection int
	// Delivery is its sink.
	Delivery *Delivery
}

// Services returns all services in the order of the files.
func (c *Config) Services() []Service {
	var all []Service
	for i := range c.Projections {
		p := &c.Projections[i]
		for j := range p.Deliver {
			d := &p.Deliver[j]
			all = append(all, Service{
				Name:       p.Customer + "/" + p.Name + "@" + d.Name,
				Projection: i,
				Delivery:   d,
			})
		}
	}
	return all
}

// ServiceNames returns the names of all services in the order of the files.
func (c *Config) ServiceNames() []string {
	var names []string
	for _, s := range c.Services() {
		names = append(names, s.Name)
	}
	return names
}

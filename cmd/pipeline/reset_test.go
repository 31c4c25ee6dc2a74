package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/operate"
)

func TestResetQuestion(t *testing.T) {
	dam := operate.ServiceEffect{Service: "acme/all@out", Reset: 3}
	check := operate.ServiceEffect{Service: "acme/crm@check", Reset: 2, Check: true}
	for want, r := range map[string]operate.Result{
		"Reset 3 entities (3 dam rows of 1 service)?":                                     {Entities: 3, Services: []operate.ServiceEffect{dam}},
		"Reset 2 check rows of 1 check service?":                                          {CheckRows: 2, Services: []operate.ServiceEffect{check}},
		"Reset 3 entities (3 dam rows of 1 service) and 2 check rows of 1 check service?": {Entities: 3, CheckRows: 2, Services: []operate.ServiceEffect{dam, check}},
		"Reset 0 entities (0 dam rows of 0 services)?":                                    {},
	} {
		require.Equal(t, want, resetQuestion(operate.Reset, r))
	}
}

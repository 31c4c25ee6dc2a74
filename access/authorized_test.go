package access_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/access"
)

func TestAuthorized(t *testing.T) {
	for _, c := range []struct {
		header []string
		token  string
		want   bool
	}{
		{nil, "", true}, {[]string{"Bearer x"}, "", true},
		{[]string{"Bearer secret"}, "secret", true}, {[]string{"bearer secret"}, "secret", true},
		{nil, "secret", false}, {[]string{"secret"}, "secret", false}, {[]string{"Bearer "}, "secret", false},
		{[]string{"Bearer secre"}, "secret", false}, {[]string{"Basic secret"}, "secret", false},
		{[]string{"Bearer secret", "Bearer secret"}, "secret", false},
	} {
		r := &http.Request{Header: http.Header{"Authorization": c.header}}
		require.Equal(t, c.want, access.Authorized(r, c.token), "%q for %q", c.header, c.token)
	}
}

package pg

import "testing"

// TestHBAVerdict wants a line told without what may be a password.
func TestHBAVerdict(t *testing.T) {
	for name, tc := range map[string]struct{ line, verdict, want string }{
		"method": {
			"hostssl all a all ldap", `invalid authentication method "ldap": not supported by this build`,
			`pg_hba.conf: PostgreSQL refuses the line "hostssl all a all ldap" (invalid authentication method), and goes on with the lines from before`,
		},
		"option": {
			`hostssl all a all radius radiussecrets="my hunter2" x=y`, `could not parse RADIUS secrets list "my hunter2"`,
			`pg_hba.conf: PostgreSQL refuses the line "hostssl all a all radius …" (could not parse RADIUS secrets list), and goes on with the lines from before`,
		},
		"word": {
			"hostssl all a all cert hunter2", "authentication option not in name=value format: hunter2",
			`pg_hba.conf: PostgreSQL refuses the line "hostssl all a all cert …" (authentication option not in name=value format), and goes on with the lines from before`,
		},
		"nothing said": {
			"hostssl all a all cert clientcert=1", "",
			`pg_hba.conf: PostgreSQL refuses the line "hostssl all a all cert …" (an option has a wrong value), and goes on with the lines from before`,
		},
	} {
		if got := hbaVerdict(tc.line, tc.verdict); got != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tc.want)
		}
	}
}

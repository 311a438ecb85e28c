package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/acme/pg-operator/postgres"
)

// TestCheckHBA gives a line of each kind that is refused, and wants the reason.
func TestCheckHBA(t *testing.T) {
	for line, want := range map[string]string{
		"": "is empty", "# nothing": "must begin with hostssl", "host all a all reject": "must begin with hostssl",
		"local all all peer": "must begin with hostssl", "hostssl": "must begin with hostssl", `"hostssl" all a all reject`: "must begin with hostssl",
		"hostssl all a all reject\nhost all all all trust": "must be one line", "hostssl all a all reject\r": "must be one line",
		`hostssl all a all reject \`: `ends in \`, "hostssl all a\u00a0all reject": "U+00A0", "hostssl all a all reject\x00": "U+0000",
		"hostssl all a all reject" + strings.Repeat(" ", 1024): "has 1048 characters",
		"hostssl all":                                          "ends before the user",
		"hostssl all a":                                        "ends before the address",
		"hostssl all a all":                                    "ends before the method",
		"hostssl all a 10.0.0.1":                               "write its length too, such as 10.0.0.1/32",
		"hostssl all a 10.0.0.1 reject":                        `write it as 10.0.0.1/32`,
		"hostssl all a 10.0.0.0/33 reject":                     "whose length must be from 0 to 32",
		"hostssl all a fd00::/129 reject":                      "whose length must be from 0 to 128",
		"hostssl all a 10.0.0.256/8 reject":                    "is not an address with its length",
		"hostssl all a 010.0.0.1/8 reject":                     "can be misread",
		"hostssl all a 10.0.0.1 255.0.255.0 cert":              "can be misread",
		"hostssl all a 10.0.0.256 reject":                      "accepted are an address with its length",
		"hostssl all a ex_ample/ reject":                       "is not an address with its length",
		"hostssl all a b,c reject":                             "has a list as the address",
		"hostssl all a all reject,cert":                        "has a list as the method",
		"hostssl all a all scram":                              `has "scram" as its method; accepted are scram-sha-256`,
		"hostssl all a all oauth":                              `has "oauth" as its method`,
		"hostssl all a all trust":                              "without any proof",
		"hostssl all a all md5":                                "has the method md5",
		"hostssl all a all password":                           "shows the server the password",
		"hostssl all a all ident":                              "has the method ident",
		"hostssl all a all peer":                               "for Unix sockets only",
		"hostssl all a all ldap ldapserver=x":                  "has the method ldap",
		"hostssl all a all radius radiussecrets=x":             "has the method radius",
		"hostssl replication a all cert":                       "has the database replication",
		"hostssl app,replication a all cert":                   "has the database replication",
		"hostssl all pgoperator_replication all cert":          "has the user pgoperator_replication",
		`hostssl all a,"pgoperator_replication" all reject`:    "has the user pgoperator_replication",
		"hostssl all +pgoperator_replication all cert":         "has the user pgoperator_replication",
		"hostssl all @admins all cert":                         "reads another file",
		"hostssl @dbs all all cert":                            "reads another file",
		`hostssl all "" all cert`:                              "has an empty name as a user",
		"hostssl all + all cert":                               "has an empty name as a user",
		`hostssl all "a all cert`:                              "ends before the address",
		`hostssl all a all cert "`:                             "is not name=value",
		`hostssl all a all cert "clientcert=verify-full`:       `has a quote (")`,
		"hostssl all " + strings.Repeat("n", 64) + " all cert": "longer than a name can be",
		"hostssl all /^a( all cert":                            "accepted are regular expressions",
		"hostssl all a all cert map=x":                         "has the option map",
		"hostssl all a all scram-sha-256 map=x":                "option 1",
		"hostssl all a all cert clientname=DN":                 "accepted is CN",
		"hostssl all a all cert clientcert=verify-ca":          "clientcert=verify-full only",
		"hostssl all a all scram-sha-256 clientcert=1":         "another value of clientcert",
	} {
		problems := postgres.CheckHBA("17", []string{"hostssl all all all reject", line})
		if len(problems) != 1 || problems[0].Line != 1 || !strings.Contains(problems[0].Detail, want) {
			t.Errorf("%q: %v, want %q", line, problems, want)
		}
	}
	if problems := postgres.CheckHBA("15", []string{"hostssl all /^a all cert"}); len(problems) != 1 || problems[0].Syntax ||
		!strings.Contains(problems[0].Detail, "came with PostgreSQL 16") {
		t.Errorf("an expression before 16: %v", problems)
	}
}

// TestHBASecrets looks for the value of an option in what is said of a line, wherever the option stands.
func TestHBASecrets(t *testing.T) {
	const secret = "hunter2hunter2"
	words := []string{
		"hostssl", "all", "10.0.0.0/8", "ldap", "scram-sha-256", "ldapbindpasswd=" + secret, `ldapbindpasswd="a ` + secret + `"`,
		`"ldapbindpasswd=` + secret + `"`, "clientcert=" + secret, "clientname=" + secret, "/a=" + secret, "x,y",
	}
	rapid.Check(t, func(t *rapid.T) {
		line := "hostssl " + strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 7).Draw(t, "words"), " ")
		for _, problem := range slices.Concat(postgres.CheckHBA("17", []string{line}), postgres.HBARisks("17", []string{line, line})) {
			if strings.Contains(problem.Detail, secret) {
				t.Fatalf("%q: %s", line, problem.Detail)
			}
		}
	})
}

// TestHBA wants the user's lines behind the operator's own, and the superuser in only where a line names it.
func TestHBA(t *testing.T) {
	own := postgres.ClosedHBA()
	end := []string{"hostssl all postgres all reject", "hostssl all all all scram-sha-256"}
	for name, tc := range map[string]struct{ user, want []string }{
		"none":          {},
		"another role":  {[]string{"hostssl all a 10.0.0.0/8 cert"}, []string{"hostssl all a 10.0.0.0/8 cert"}},
		"the superuser": {[]string{"hostssl all a,postgres all cert"}, []string{"hostssl all a,postgres all cert"}},
		"everybody": {
			[]string{"hostssl  app, b all 10.0.0.1\t255.0.0.0 scram-sha-256 clientcert=verify-ca # all"},
			[]string{
				"hostssl app, b postgres 10.0.0.1 255.0.0.0 reject",
				"hostssl  app, b all 10.0.0.1\t255.0.0.0 scram-sha-256 clientcert=verify-ca # all",
			},
		},
		"a group":             {[]string{"hostssl all +g all cert"}, []string{"hostssl all postgres all reject", "hostssl all +g all cert"}},
		"an expression":       {[]string{`hostssl all "/^p" all cert`}, []string{"hostssl all postgres all reject", `hostssl all "/^p" all cert`}},
		"a role of that name": {[]string{`hostssl all "all" all cert`}, []string{`hostssl all "all" all cert`}},
		"everybody rejected":  {[]string{"hostssl all all all reject"}, []string{"hostssl all all all reject"}},
		"a refused one":       {[]string{"host all all all trust"}, []string{"hostssl all all all reject"}},
	} {
		got := postgres.HBA("17", tc.user)
		if want := slices.Concat(own, tc.want, end); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, line := range got {
			fields := strings.Fields(line)
			if fields[0] != "local" && fields[0] != "hostssl" {
				t.Errorf("%s: %q lets in without TLS", name, line)
			}
			for _, weak := range []string{"trust", "md5", "password", "ident"} {
				if slices.Contains(fields, weak) {
					t.Errorf("%s: %q uses %s", name, line, weak)
				}
			}
		}
	}
}

func TestHBARisks(t *testing.T) {
	const never, super = "is never used, because line 0", "lets the superuser postgres in"
	for name, tc := range map[string]struct {
		lines []string
		want  string
	}{
		"none":                 {lines: []string{"hostssl app a 10.0.0.0/8 cert", "hostssl app b 10.0.0.0/8 cert"}},
		"twice the same":       {[]string{"hostssl app a all cert", "hostssl app a all reject"}, never},
		"after everybody":      {[]string{"hostssl all all all reject", "hostssl app a samenet cert"}, never},
		"part of a list":       {[]string{"hostssl app,b a,c 10.0.0.0/8 reject", "hostssl app c 10.1.0.0/16 cert"}, never},
		"another of a list":    {lines: []string{"hostssl app,b a,c 10.0.0.0/8 reject", "hostssl app c,d 10.1.0.0/16 cert"}},
		"a larger network":     {lines: []string{"hostssl app a 10.1.0.0/16 reject", "hostssl app a 10.0.0.0/8 cert"}},
		"another network":      {lines: []string{"hostssl app a 10.1.0.0/16 reject", "hostssl app a 10.2.0.0/16 cert"}},
		"another family":       {lines: []string{"hostssl app a 0.0.0.0/0 reject", "hostssl app a ::/0 cert"}},
		"with a mask":          {[]string{"hostssl app a 10.0.0.1 255.0.0.0 reject", "hostssl app a 10.2.0.0/16 cert"}, never},
		"after a wrong one":    {lines: []string{"host all all all reject", "hostssl app a all cert"}},
		"superuser":            {[]string{"hostssl all a all cert", `hostssl all b,"postgres" all cert`}, super},
		"superuser rejected":   {lines: []string{"hostssl all postgres all reject"}},
		"superuser, unnoticed": {[]string{"hostssl all all all cert", "hostssl all postgres all cert"}, never},
	} {
		risks := postgres.HBARisks("17", tc.lines)
		if (len(risks) > 0) != (tc.want != "") || len(risks) > 1 ||
			len(risks) == 1 && (risks[0].Line != 1 || !strings.Contains(risks[0].Detail, tc.want)) {
			t.Errorf("%s: %v, want %q", name, risks, tc.want)
		}
	}
}

package images

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadMirrors(t *testing.T) {
	const (
		archive  = "http://mirror.example/debian"
		security = "http://mirror.example/debian-security"
	)
	cases := map[string]struct {
		files map[string]string
		want  []string // sources of trixie and trixie-security
		fails bool
	}{
		"deb822": {
			files: map[string]string{"sources.list.d/debian.sources": `Types: deb
# a remark
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian.gpg

Types: deb deb-src
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
`},
			want: []string{
				"deb [signed-by=/usr/share/keyrings/debian.gpg] " + archive + " trixie main",
				"deb " + security + " trixie-security main",
			},
		},
		"one line": {
			files: map[string]string{"sources.list": `# deb http://old.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib # remark
deb http://mirror.example/debian-security bookworm-security main
`},
			want: []string{"deb [signed-by=/k.gpg] " + archive + " trixie main", "deb " + security + " trixie-security main"},
		},
		"others are passed over": {
			files: map[string]string{
				"sources.list.d/a.list": "deb http://tools.example/apt stable-tools main\ndeb http://mirror.example/debian trixie main\n",
				"sources.list.d/b.sources": `Enabled: no
Types: deb
URIs: http://disabled.example/debian
Suites: trixie-security
Components: main

Types: deb
URIs: http://mirror.example/debian-security
Suites: trixie-security
Components: main`,
			},
			want: []string{"deb " + archive + " trixie main", "deb " + security + " trixie-security main"},
		},
		"no security":          {files: map[string]string{"sources.list": "deb http://mirror.example/debian bookworm main\n"}, fails: true},
		"another distribution": {files: map[string]string{"sources.list": "deb http://mirror.example/ubuntu noble main\n"}, fails: true},
		"nothing":              {fails: true},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			root := t.TempDir()
			for path, content := range tc.files {
				full := filepath.Join(root, "etc/apt", path)
				if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			found, err := readMirrors(root)
			if tc.fails {
				if err == nil {
					t.Fatalf("found %+v, want an error", found)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := []string{found.archive.source("trixie"), found.security.source("trixie-security")}
			if !slices.Equal(got, tc.want) {
				t.Errorf("sources\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

func TestTransportOptions(t *testing.T) {
	dump := `APT::Architecture "amd64";
Acquire::Check-Valid-Until "false";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3142";
Acquire::https::Proxy "";
DPkg::Post-Invoke:: "true";
`
	want := []string{`Acquire::Check-Valid-Until "false"`, `Acquire::http::Proxy "http://proxy.example:3142"`}
	if got := transportOptions(dump); !slices.Equal(got, want) {
		t.Errorf("options %q, want %q", got, want)
	}
}

func TestVerifyVersion(t *testing.T) {
	cases := map[string]struct {
		recipe  debianPostgres
		printed string
		want    string
	}{
		"exact": {
			recipe:  debianPostgres{major: "15", version: "15.18"},
			printed: "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\ninitdb (PostgreSQL) 15.18\n", want: "15.18",
		},
		"another minor":       {recipe: debianPostgres{major: "15", version: "15.18"}, printed: "postgres (PostgreSQL) 15.20\n"},
		"newer is welcome":    {recipe: debianPostgres{major: "15", version: "15.20", newer: true}, printed: "postgres (PostgreSQL) 15.21\n", want: "15.21"},
		"but not another one": {recipe: debianPostgres{major: "15", version: "15.20", newer: true}, printed: "postgres (PostgreSQL) 150.1\n"},
		"no server":           {recipe: debianPostgres{major: "15", version: "15.20", newer: true}, printed: "psql (PostgreSQL) 15.20\n"},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "versions")
			if err := os.WriteFile(path, []byte(tc.printed), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := tc.recipe.verify(path)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("version %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestReferences(t *testing.T) {
	got := references([]string{"15.20", "15"}, "15.20")
	if want := []string{"docker.io/library/postgres:15.20", "docker.io/library/postgres:15"}; !slices.Equal(got, want) {
		t.Errorf("references %v, want %v", got, want)
	}
	got = references([]string{"17"}, "17.12")
	if want := []string{"docker.io/library/postgres:17", "docker.io/library/postgres:17.12"}; !slices.Equal(got, want) {
		t.Errorf("references %v, want %v", got, want)
	}
}

func TestPostgresConfig(t *testing.T) {
	config := postgresConfig("16.14", "16", "17")
	if got := pathOf(config.Env); !strings.HasPrefix(got, "/usr/lib/postgresql/16/bin:/usr/lib/postgresql/17/bin:/usr/local/sbin:") {
		t.Errorf("PATH %s, want the server's directory first", got)
	}
	for _, variable := range []string{"PG_VERSION=16.14", "PG_MAJOR=16", "LANG=C.UTF-8"} {
		if !slices.Contains(config.Env, variable) {
			t.Errorf("environment %v lacks %s", config.Env, variable)
		}
	}
	if config.User != "999:999" {
		t.Errorf("user %s", config.User)
	}
}

func TestServerFile(t *testing.T) {
	cases := map[string]string{
		"package/native/bin/postgres":                   "bin/postgres",
		"package/native/lib/libssl.so.1.1":              "lib/libssl.so.1.1",
		"package/native/lib/postgresql/plpgsql.so":      "lib/postgresql/plpgsql.so",
		"package/native/lib/postgresql/plperl.so":       "",
		"package/native/lib/postgresql/pgxs/config/Mak": "",
		"package/native/lib/libpq.a":                    "",
		"package/native/pg-symlinks.json":               "",
		"package/dist/index.js":                         "",
	}
	for name, want := range cases {
		if got, wanted := serverFile(name); got != want && wanted || wanted != (want != "") {
			t.Errorf("%s becomes %q (%v), want %q", name, got, wanted, want)
		}
	}
}

func TestStepWriter(t *testing.T) {
	var steps []string
	writer := stepWriter{report: func(step string) { steps = append(steps, step) }}
	for _, chunk := range []string{"I: chroot archi", "tecture\nI: downloading packages with apt...\n", "E: no such package\nE: unfinished"} {
		if n, err := writer.Write([]byte(chunk)); n != len(chunk) || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := []string{"downloading packages with apt"}; !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	if got := writer.tail(); !strings.HasSuffix(got, "E: no such package\nE: unfinished") {
		t.Errorf("tail %q", got)
	}
}

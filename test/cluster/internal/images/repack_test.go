package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestRepack(t *testing.T) {
	files := []struct{ name, content string }{
		{"package/package.json", "{}"},
		{"package/native/bin/postgres", "server"},
		{"package/native/pg-symlinks.json", `[
			{"source": "native/lib/libicuuc.so.60.2", "target": "native/lib/libicuuc.so.60"},
			{"source": "native/lib/libecpg.so.6.16", "target": "native/lib/libecpg.so.6"}]`},
		{"package/native/lib/libicuuc.so.60.2", "icu"},
		{"package/native/lib/libpq.a", "static"},
	}
	var packed bytes.Buffer
	zipper := gzip.NewWriter(&packed)
	writer := tar.NewWriter(zipper)
	for _, file := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: 0o755, Size: int64(len(file.content))}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(file.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writer.Close(), zipper.Close()); err != nil {
		t.Fatal(err)
	}
	in, out := filepath.Join(t.TempDir(), "package.tgz"), filepath.Join(t.TempDir(), "layer.tar")
	if err := os.WriteFile(in, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (embeddedPostgres{version: "16.14.0"}).repack(in, out, "17"); err != nil {
		t.Fatal(err)
	}
	layer, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = layer.Close() }()
	got := map[string]string{}
	for reader := tar.NewReader(layer); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		got[header.Name] = string(content) + header.Linkname
	}
	const root = "usr/lib/postgresql/16/"
	want := map[string]string{
		root + "bin/postgres":         "server",
		root + "lib/libicuuc.so.60.2": "icu",
		root + "lib/libicuuc.so.60":   "libicuuc.so.60.2",
	}
	for _, client := range []string{"pg_basebackup", "pg_rewind", "pg_controldata", "psql", "pg_isready", "pgbench"} {
		want[root+"bin/"+client] = "../../17/bin/" + client
	}
	for name, content := range want {
		if got[name] != content {
			t.Errorf("%s is %q, want %q", name, got[name], content)
		}
	}
	if len(got) != len(want) {
		t.Errorf("layer holds %v, want %v", got, want)
	}
}

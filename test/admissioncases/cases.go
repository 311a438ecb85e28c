// Package admissioncases is the table of what admission accepts and refuses.
// The pure rules, the CRD alone, the webhook alone and both together are tested
// with the same table, so that no layer knows a rule better than another.
package admissioncases

import (
	"fmt"
	"maps"
	"strings"
)

// many is n numbered items, separated by commas.
func many(n int, item string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(item, i)
	}
	return strings.Join(items, ", ")
}

// Case is one object, or one change of an object, and the verdict on it.
type Case struct {
	// Old is the spec before a change, as YAML; empty for a new object.
	Old string
	// Status is the status at the time of the change, as YAML.
	Status string
	// New is the spec that is judged, as YAML.
	New string
	// ObjectName is the object's name; empty for an ordinary one.
	ObjectName string
	// Refused are the fields that the verdict names, sorted; none when the object is accepted.
	Refused []string
	// Says is part of the message for a refused field.
	Says string
	// NotInSchema marks rules that need more knowledge than a schema has: the webhook's alone.
	NotInSchema bool
	// Kept marks removals that the defaulting webhook makes good: where it runs, the old value stays and nothing is
	// refused.
	Kept bool
	// Warns is part of a warning that is given.
	Warns string
}

// All is the table, by name of the case.
var All = joined(general, availability)

func joined(tables ...map[string]Case) map[string]Case {
	all := map[string]Case{}
	for _, table := range tables {
		maps.Copy(all, table)
	}
	return all
}

var general = map[string]Case{
	"seed manifest": {New: `{replicas: 3, version: "16", storage: 20Gi}`},
	"nothing set":   {New: `{}`, Warns: "spec.replicas: 1 keeps the data on one volume"},

	"replicas 1":        {New: `{replicas: 1}`, Warns: "spec.replicas: 1 keeps the data on one volume"},
	"replicas 2":        {New: `{replicas: 2}`, Warns: "spec.replicas: 2 leaves a single copy"},
	"replicas 5":        {New: `{replicas: 5}`},
	"replicas 0":        {New: `{replicas: 0}`, Refused: []string{"spec.replicas"}},
	"replicas 6":        {New: `{replicas: 6}`, Refused: []string{"spec.replicas"}},
	"replicas negative": {New: `{replicas: -1}`, Refused: []string{"spec.replicas"}},
	"replicas to 9":     {Old: `{replicas: 3}`, New: `{replicas: 9}`, Refused: []string{"spec.replicas"}},
	"replicas up":       {Old: `{replicas: 1}`, New: `{replicas: 3}`},
	"replicas down":     {Old: `{replicas: 3}`, New: `{replicas: 1}`, Warns: "spec.replicas: 1 keeps the data on one volume"},

	"version 15":      {New: `{replicas: 3, version: "15"}`},
	"version 18":      {New: `{replicas: 3, version: "18"}`},
	"version 14":      {New: `{version: "14"}`, Refused: []string{"spec.version"}, Says: `"15", "16", "17", "18"`},
	"version 15.2":    {New: `{version: "15.2"}`, Refused: []string{"spec.version"}},
	"version words":   {New: `{version: "latest"}`, Refused: []string{"spec.version"}},
	"version down":    {Old: `{version: "16"}`, New: `{version: "15"}`, Refused: []string{"spec.version"}, Says: `keep "16"`},
	"version removed": {Old: `{version: "16"}`, New: `{}`, Kept: true, Refused: []string{"spec.version"}, Says: `keep "16"`},
	"version up without opt-in": {
		Old: `{version: "15"}`, New: `{version: "16"}`,
		Refused: []string{"spec.version"}, Says: "set spec.upgradePolicy to AllowMajor",
	},
	"version up with opt-in": {
		Old: `{version: "15"}`, New: `{version: "16", upgradePolicy: AllowMajor}`, Warns: "15 to 16 is a major upgrade",
	},
	"version down with opt-in": {
		Old: `{version: "16", upgradePolicy: AllowMajor}`, New: `{version: "15", upgradePolicy: AllowMajor}`,
		Refused: []string{"spec.version"},
	},
	"version back to that of the data": {
		Old: `{version: "17"}`, Status: `{version: "16"}`, New: `{version: "16"}`,
	},
	"version below that of the data": {
		Old: `{version: "17"}`, Status: `{version: "16"}`, New: `{version: "15"}`, Refused: []string{"spec.version"},
	},
	"version set to that of the data":    {Old: `{}`, Status: `{version: "16"}`, New: `{version: "16"}`},
	"version set below that of the data": {Old: `{}`, Status: `{version: "16"}`, New: `{version: "15"}`, Refused: []string{"spec.version"}},
	"version set above that of the data": {
		Old: `{}`, Status: `{version: "16"}`, New: `{version: "18"}`, Refused: []string{"spec.version"}, Says: "to 18: this is a major",
	},
	"upgrade policy unknown": {New: `{upgradePolicy: Always}`, Refused: []string{"spec.upgradePolicy"}},

	"storage 1Gi":       {New: `{replicas: 3, storage: 1Gi}`},
	"storage most":      {New: `{replicas: 3, storage: 65536Gi}`},
	"storage too much":  {New: `{storage: 65537Gi}`, Refused: []string{"spec.storage"}, Says: "65536Gi"},
	"storage zero":      {New: `{storage: 0Gi}`, Refused: []string{"spec.storage"}},
	"storage zeros":     {New: `{storage: 000Gi}`, Refused: []string{"spec.storage"}},
	"storage octal":     {New: `{storage: 020Gi}`, Refused: []string{"spec.storage"}},
	"storage fraction":  {New: `{storage: 1.5Gi}`, Refused: []string{"spec.storage"}},
	"storage negative":  {New: `{storage: -1Gi}`, Refused: []string{"spec.storage"}},
	"storage in Ti":     {New: `{storage: 1Ti}`, Refused: []string{"spec.storage"}, Says: "such as 20Gi"},
	"storage in G":      {New: `{storage: 20G}`, Refused: []string{"spec.storage"}},
	"storage absurd":    {New: `{storage: 99999999999999999999Gi}`, Refused: []string{"spec.storage"}},
	"storage with text": {New: `{storage: "20Gi "}`, Refused: []string{"spec.storage"}},
	"storage grows":     {Old: `{storage: 9Gi}`, New: `{storage: 10Gi}`},
	"storage shrinks":   {Old: `{storage: 10Gi}`, New: `{storage: 9Gi}`, Refused: []string{"spec.storage"}, Says: "10Gi"},
	"storage shrinks by more digits": {
		Old: `{storage: 100Gi}`, New: `{storage: 20Gi}`, Refused: []string{"spec.storage"}, Says: "100Gi",
	},
	"storage removed": {Old: `{storage: 10Gi}`, New: `{}`, Kept: true, Refused: []string{"spec.storage"}, Says: "keep 10Gi"},
	"storage back to what is provisioned": {
		Old: `{storage: 50Gi}`, Status: `{provisionedStorage: 20Gi}`, New: `{storage: 20Gi}`,
	},
	"storage back to above what is provisioned": {
		Old: `{storage: 50Gi}`, Status: `{provisionedStorage: 20Gi}`, New: `{storage: 30Gi}`,
	},
	"storage below what is provisioned": {
		Old: `{storage: 50Gi}`, Status: `{provisionedStorage: 50Gi}`, New: `{storage: 20Gi}`,
		Refused: []string{"spec.storage"}, Says: "50Gi, which is provisioned",
	},
	"storage provisioned in Ti": {
		Old: `{storage: 2048Gi}`, Status: `{provisionedStorage: 1Ti}`, New: `{storage: 1023Gi}`,
		Refused: []string{"spec.storage"}, Says: "1Ti, which is provisioned",
	},
	"storage set below what is provisioned": {
		Old: `{}`, Status: `{provisionedStorage: 50Gi}`, New: `{storage: 20Gi}`, Refused: []string{"spec.storage"},
	},
	"storage set": {Old: `{}`, New: `{storage: 60Gi}`},

	"class":         {New: `{replicas: 3, storageClassName: fast}`},
	"class empty":   {New: `{replicas: 3, storageClassName: ""}`, Warns: "spec.storageClassName"},
	"class invalid": {New: `{storageClassName: Fast_Disks}`, Refused: []string{"spec.storageClassName"}},
	"class changed": {
		Old: `{storageClassName: fast}`, New: `{storageClassName: slow}`,
		Refused: []string{"spec.storageClassName"}, Says: `keep "fast"`,
	},
	"class removed":          {Old: `{storageClassName: fast}`, New: `{}`, Refused: []string{"spec.storageClassName"}, Says: `keep "fast"`},
	"class set later":        {Old: `{}`, New: `{storageClassName: fast}`, Refused: []string{"spec.storageClassName"}, Says: "leave it out"},
	"class emptied":          {Old: `{storageClassName: fast}`, New: `{storageClassName: ""}`, Refused: []string{"spec.storageClassName"}},
	"class kept":             {Old: `{storageClassName: fast}`, New: `{storageClassName: fast, replicas: 3}`},
	"class none to empty":    {Old: `{}`, New: `{storageClassName: ""}`, Refused: []string{"spec.storageClassName"}},
	"deletion policy":        {Old: `{}`, New: `{deletionPolicy: Delete}`, Warns: "spec.deletionPolicy"},
	"deletion policy back":   {Old: `{deletionPolicy: Delete}`, New: `{deletionPolicy: Retain}`},
	"deletion policy absurd": {New: `{deletionPolicy: Orphan}`, Refused: []string{"spec.deletionPolicy"}},

	"name longest":      {ObjectName: "a2345678901234567890123456789012345678901234567890", New: `{replicas: 3}`},
	"name too long":     {ObjectName: "a23456789012345678901234567890123456789012345678901", New: `{}`, Refused: []string{"metadata.name"}, Says: "50"},
	"name of a Service": {ObjectName: "orders-rw", New: `{replicas: 3}`, Warns: "one of a cluster named orders;"},
	"name with dot":     {ObjectName: "orders.db", New: `{}`, Refused: []string{"metadata.name"}},
	"name of digit":     {ObjectName: "1orders", New: `{}`, Refused: []string{"metadata.name"}, Says: "start with a letter"},

	"image with tag":    {New: `{replicas: 3, version: "16", image: "postgres:16.4"}`},
	"image with digest": {New: `{replicas: 3, image: "r.example.com:5000/a/postgres@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}`},
	"image latest":      {New: `{replicas: 3, image: "postgres:latest"}`, Warns: "spec.image: an image without tag"},
	"image untagged":    {New: `{replicas: 3, image: "localhost:5000/postgres"}`, Warns: "spec.image: an image without tag"},
	"image of another version": {
		New: `{replicas: 3, version: "16", image: "postgres:15"}`, Warns: "tag 15 does not look like spec.version 16",
	},
	"image upper case":  {New: `{image: Postgres}`, Refused: []string{"spec.image"}, Says: "registry.example.com/postgres:17"},
	"image as URL":      {New: `{image: "https://example.com/postgres"}`, Refused: []string{"spec.image"}},
	"image with blanks": {New: `{image: "postgres 16"}`, Refused: []string{"spec.image"}},

	"resources": {New: `{replicas: 3, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1, memory: 1024Mi}}}`},
	"requests above limits": {
		New:     `{resources: {requests: {cpu: 2, memory: 2Gi}, limits: {cpu: 1500m, memory: 1Gi}}}`,
		Refused: []string{"spec.resources.requests[cpu]", "spec.resources.requests[memory]"},
	},
	"request negative": {New: `{resources: {requests: {memory: -1Gi}}}`, Refused: []string{"spec.resources.requests[memory]"}},
	"limit zero":       {New: `{resources: {limits: {cpu: 0}}}`, Refused: []string{"spec.resources.limits[cpu]"}},
	"memory in milli-bytes": {
		New: `{resources: {limits: {memory: 512m}}}`, Refused: []string{"spec.resources.limits[memory]"}, Says: "64Mi",
	},
	"memory little":   {New: `{replicas: 3, resources: {limits: {memory: 128Mi}}}`, Warns: "128Mi is little"},
	"resource claims": {New: `{resources: {claims: [{name: gpu}]}}`, Refused: []string{"spec.resources.claims"}},
	"resource unknown": {
		New: `{resources: {limits: {ram: 1Gi}}}`, Refused: []string{"spec.resources.limits[ram]"}, NotInSchema: true,
	},
	"huge pages without limit": {
		New:     `{resources: {requests: {cpu: 1, hugepages-2Mi: 64Mi}}}`,
		Refused: []string{"spec.resources.requests[hugepages-2Mi]"}, NotInSchema: true,
	},
	"huge pages alone": {
		New: `{resources: {limits: {hugepages-2Mi: 64Mi}}}`, Refused: []string{"spec.resources"}, NotInSchema: true,
	},
	"huge pages in parts": {
		New:     `{resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}}`,
		Refused: []string{"spec.resources.limits[hugepages-2Mi]"}, NotInSchema: true,
	},
	"device in halves": {
		New:     `{resources: {limits: {cpu: 1, vendor.example.com/device: 500m}}}`,
		Refused: []string{"spec.resources.limits[vendor.example.com/device]"}, NotInSchema: true,
	},

	"parameter": {New: `{replicas: 3, parameters: {work_mem: 8MB, pg_stat_statements.max: "10000"}}`},
	"parameter of ours": {
		New: `{parameters: {listen_addresses: "*"}}`, Refused: []string{"spec.parameters[listen_addresses]"}, Says: "use a NetworkPolicy",
	},
	"parameters that endanger data": {
		New: `{parameters: {fsync: "off", full_page_writes: "off", archive_command: "true", ssl: "off"}}`,
		Refused: []string{
			"spec.parameters[archive_command]", "spec.parameters[fsync]", "spec.parameters[full_page_writes]", "spec.parameters[ssl]",
		}, Says: "without it a crash loses the database; use synchronous_commit = off",
	},
	"parameters wrong": {
		New:     `{parameters: {Fsync: "off", work_mem: lots, "no such": "1"}}`,
		Refused: []string{"spec.parameters[Fsync]", "spec.parameters[no such]", "spec.parameters[work_mem]"}, NotInSchema: true,
	},
	"parameter unknown": {
		New: `{version: "17", parameters: {work_men: 8MB}}`, Refused: []string{"spec.parameters[work_men]"},
		Says: "is not a setting of PostgreSQL 17; did you mean work_mem?", NotInSchema: true,
	},
	"parameter of a later version": {
		New: `{version: "16", parameters: {io_method: sync}}`, Refused: []string{"spec.parameters[io_method]"}, Says: "it came with 18", NotInSchema: true,
	},
	"parameter out of range": {
		New: `{parameters: {work_mem: 1kB}}`, Refused: []string{"spec.parameters[work_mem]"}, Says: "between 64kB and 2147483647kB", NotInSchema: true,
	},
	"parameter with a program": {
		New: `{parameters: {archive_cleanup_command: "id"}}`, Refused: []string{"spec.parameters[archive_cleanup_command]"},
		Says: "archiving", NotInSchema: true,
	},
	"parameters that conflict": {
		New:     `{parameters: {max_connections: "10", superuser_reserved_connections: "10"}}`,
		Refused: []string{"spec.parameters[superuser_reserved_connections]"}, Says: "raise max_connections", NotInSchema: true,
	},
	"parameters that come to conflict": {
		Old: `{parameters: {superuser_reserved_connections: "20"}}`, New: `{parameters: {max_connections: "20", superuser_reserved_connections: "20"}}`,
		Refused: []string{"spec.parameters[superuser_reserved_connections]"}, NotInSchema: true,
	},
	"parameter with restart": {
		Old: `{replicas: 3}`, New: `{replicas: 3, parameters: {max_connections: "200"}}`, Warns: "spec.parameters[max_connections]: takes a restart",
	},
	"parameter with restart removed": {
		Old: `{replicas: 3, parameters: {wal_level: logical}}`, New: `{replicas: 3}`, Warns: "spec.parameters[wal_level]: takes a restart",
	},
	"parameter with restart at first": {New: `{replicas: 3, parameters: {max_connections: "200"}}`},
	"parameter wrong beside an old wrong one": {
		Old: `{parameters: {work_mem: 8MB}}`, New: `{parameters: {work_mem: 8MB, port: "1"}}`,
		Refused: []string{"spec.parameters[port]"},
	},

	"hba": {New: `{replicas: 3, version: "16", hba: [
		"hostssl all reports,+readers 10.0.0.0/8 scram-sha-256", "hostssl app \"Miller\" .example.com cert",
		"hostssl sameuser /^tenant_\\d+$ fd00::/8 scram-sha-256 clientcert=verify-ca", "hostssl all all all reject"]}`},
	"hba without TLS": {
		New:     `{hba: ["host all all all scram-sha-256", "local all all peer", "hostssl all all all scram-sha-256", "# all"]}`,
		Refused: []string{"spec.hba[0]", "spec.hba[1]", "spec.hba[3]"}, Says: "write hostssl instead of host or hostgssenc",
	},
	"hba of two lines": {
		New:     `{hba: ["hostssl all a all reject\nhostssl all b all reject"]}`,
		Refused: []string{"spec.hba[0]"}, Says: "must be one line",
	},
	"hba empty": {New: `{hba: [""]}`, Refused: []string{"spec.hba[0]"}},
	"hba wrong": {
		New: `{hba: ["hostssl all", "hostssl all a 10.0.0.0/33 reject", "hostssl all a all trust", "hostssl all a all scram",
			"hostssl replication a all cert", "hostssl all pgoperator_replication all cert", "hostssl all @users all cert",
			"hostssl all a all ldap ldapserver=x ldapbindpasswd=hunter2", "hostssl all a all cert \\"]}`,
		Refused: []string{
			"spec.hba[0]", "spec.hba[1]", "spec.hba[2]", "spec.hba[3]", "spec.hba[4]", "spec.hba[5]", "spec.hba[6]", "spec.hba[7]",
			"spec.hba[8]",
		}, Says: "accepted are scram-sha-256 (a password), cert (a client certificate) and reject", NotInSchema: true,
	},
	"hba with an expression before 16": {
		New:     `{version: "15", hba: ["hostssl all /^a all reject"]}`,
		Refused: []string{"spec.hba[0]"}, Says: "came with PostgreSQL 16", NotInSchema: true,
	},
	"hba that opens the superuser": {
		New: `{replicas: 3, hba: ["hostssl all postgres 10.0.0.0/8 cert"]}`, Warns: "spec.hba[0]: lets the superuser postgres in",
	},
	"hba with a line that is never used": {
		New:   `{replicas: 3, hba: ["hostssl all all 10.0.0.0/8 reject", "hostssl app a 10.1.0.0/16 cert"]}`,
		Warns: "spec.hba[1]: is never used, because line 0 of the list",
	},
	"hba changed beside an old wrong one": {
		Old: `{hba: ["hostssl all a all cert"]}`, New: `{hba: ["hostssl all a all cert", "host all a all cert"]}`,
		Refused: []string{"spec.hba[1]"}, Says: "must begin with hostssl",
	},

	"node selector": {New: `{replicas: 3, nodeSelector: {disk: ssd}}`},
	"node selector on one host": {
		New: `{replicas: 3, nodeSelector: {kubernetes.io/hostname: n1}}`, Warns: "spec.nodeSelector",
	},
	"node selector invalid": {New: `{nodeSelector: {"a b": "c d"}}`, Refused: []string{"spec.nodeSelector"}, NotInSchema: true},
	"toleration":            {New: `{replicas: 3, tolerations: [{key: db, operator: Exists, effect: NoExecute, tolerationSeconds: 60}, {operator: Exists}]}`},
	"toleration invalid": {
		New: `{tolerations: [{key: db, operator: Is}, {value: x}, {key: db, operator: Exists, value: x}, {key: db, effect: Never}, {key: db, tolerationSeconds: 1}]}`,
		Refused: []string{
			"spec.tolerations[0].operator", "spec.tolerations[1].operator", "spec.tolerations[2].value",
			"spec.tolerations[3].effect", "spec.tolerations[4].effect",
		}, Says: "must be Exists when key is empty",
	},
	"spread": {New: `{replicas: 3, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}`},
	"spread invalid": {
		New: `{topologySpreadConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: Maybe}, ` +
			`{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 2}, ` +
			`{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 0, nodeAffinityPolicy: Never, nodeTaintsPolicy: Never}]}`,
		Refused: []string{
			"spec.topologySpreadConstraints[0].maxSkew", "spec.topologySpreadConstraints[0].whenUnsatisfiable",
			"spec.topologySpreadConstraints[1].minDomains", "spec.topologySpreadConstraints[2].minDomains",
			"spec.topologySpreadConstraints[2].nodeAffinityPolicy", "spec.topologySpreadConstraints[2].nodeTaintsPolicy",
		},
	},
	"spread over no label": {
		New:     `{topologySpreadConstraints: [{maxSkew: 1, topologyKey: "a b", whenUnsatisfiable: DoNotSchedule}]}`,
		Refused: []string{"spec.topologySpreadConstraints[0].topologyKey"}, NotInSchema: true,
	},
	"affinity": {New: `{replicas: 3, affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}}}`},
	"affinity invalid": {
		New: `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In}]}]}, ` +
			`preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}}}`,
		Refused: []string{
			"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values",
		}, NotInSchema: true,
	},

	"parameters too many": {
		New: `{parameters: {` + many(257, "a.p%d: x") + `}}`, Refused: []string{"spec.parameters"}, Says: "must have at most 256 items",
	},
	"node selector too long": {
		New: `{nodeSelector: {` + many(65, "l%d: x") + `}}`, Refused: []string{"spec.nodeSelector"}, Says: "must have at most 64 items",
	},
	"tolerations too many": {
		New: `{tolerations: [` + many(65, "{key: k%d, operator: Exists}") + `]}`, Refused: []string{"spec.tolerations"},
		Says: "must have at most 64 items",
	},
	"spread too much": {
		New: `{topologySpreadConstraints: [` +
			many(17, "{maxSkew: 1, topologyKey: zone%d, whenUnsatisfiable: DoNotSchedule}") + `]}`,
		Refused: []string{"spec.topologySpreadConstraints"}, Says: "must have at most 16 items",
	},

	"deletion protection":     {New: `{replicas: 3, deletionProtection: true}`},
	"deletion protection off": {Old: `{deletionProtection: true}`, New: `{deletionProtection: false}`},

	"three mistakes at once": {
		New:     `{replicas: 9, storage: 0Gi, image: Postgres}`,
		Refused: []string{"spec.image", "spec.replicas", "spec.storage"},
	},
	"mistakes of two kinds in a change": {
		Old: `{replicas: 3, version: "16", storage: 20Gi}`, New: `{replicas: 9, version: "15", storage: 10Gi, storageClassName: fast}`,
		Refused: []string{"spec.replicas", "spec.storage", "spec.storageClassName", "spec.version"},
	},
	"paused": {Old: `{replicas: 3}`, New: `{replicas: 3, paused: true}`},
}

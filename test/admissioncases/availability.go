package admissioncases

// availability are the cases of spec.synchronous and spec.failover.
var availability = map[string]Case{
	"synchronous":             {New: `{replicas: 3, synchronous: {mode: quorum}}`},
	"synchronous off":         {New: `{replicas: 3, synchronous: {mode: "off"}}`},
	"synchronous preferred":   {New: `{replicas: 3, synchronous: {mode: quorum, number: 2, durability: preferred}}`},
	"synchronous two of five": {New: `{replicas: 5, synchronous: {mode: quorum, number: 2, durability: required}}`},
	"synchronous added":       {Old: `{replicas: 3}`, New: `{replicas: 3, synchronous: {mode: quorum}}`},
	"synchronous removed":     {Old: `{replicas: 3, synchronous: {mode: quorum}}`, New: `{replicas: 3}`},
	"synchronous empty":       {New: `{replicas: 3, synchronous: {}}`, Refused: []string{"spec.synchronous.mode"}, Says: "Required value"},
	"synchronous all of five": {
		New: `{replicas: 5, synchronous: {mode: quorum, number: 4}}`, Warns: "writes wait while any replica is down",
	},
	"synchronous for any number of replicas": {
		New: `{replicas: 6, synchronous: {mode: quorum, number: 5}}`, Refused: []string{"spec.replicas", "spec.synchronous.number"},
	},
	"synchronous without replicas": {
		New: `{synchronous: {mode: quorum}}`, Refused: []string{"spec.synchronous.mode"}, Says: "set spec.replicas to at least 2",
	},
	"synchronous mode in other letters": {
		New: `{replicas: 3, synchronous: {mode: Quorum}}`, Refused: []string{"spec.synchronous.mode"},
	},
	"synchronous number negative": {
		New: `{replicas: 3, synchronous: {mode: quorum, number: -1}}`, Refused: []string{"spec.synchronous.number"},
	},
	"synchronous off with too large a number": {
		New: `{replicas: 3, synchronous: {mode: "off", number: 4}}`, Warns: "mean nothing while mode is off",
	},
	"synchronous number raised too far": {
		Old: `{replicas: 3, synchronous: {mode: quorum, number: 2}}`, New: `{replicas: 3, synchronous: {mode: quorum, number: 4}}`,
		Refused: []string{"spec.synchronous.number"}, Says: "at most 2",
	},
	"synchronous without mode": {
		New: `{replicas: 3, synchronous: {number: 1}}`, Refused: []string{"spec.synchronous.mode"}, Says: "Required value",
	},
	"synchronous mode unknown": {
		New: `{replicas: 3, synchronous: {mode: first}}`, Refused: []string{"spec.synchronous.mode"}, Says: `"quorum"`,
	},
	"synchronous durability unknown": {
		New: `{replicas: 3, synchronous: {mode: quorum, durability: strict}}`, Refused: []string{"spec.synchronous.durability"},
		Says: `"required"`,
	},
	"synchronous number zero": {
		New: `{replicas: 3, synchronous: {mode: quorum, number: 0}}`, Refused: []string{"spec.synchronous.number"},
	},
	"synchronous number too large for any": {
		New: `{replicas: 5, synchronous: {mode: quorum, number: 5}}`, Refused: []string{"spec.synchronous.number"},
	},
	"synchronous number too large": {
		New: `{replicas: 3, synchronous: {mode: quorum, number: 3}}`, Refused: []string{"spec.synchronous.number"},
		Says: "must be less than spec.replicas, which counts the primary too: at most 2",
	},
	"synchronous and too few replicas": {
		Old: `{replicas: 5, synchronous: {mode: quorum, number: 3}}`, New: `{replicas: 3, synchronous: {mode: quorum, number: 3}}`,
		Refused: []string{"spec.synchronous.number"}, Says: "at most 2",
	},
	"synchronous with one instance": {
		New: `{replicas: 1, synchronous: {mode: quorum}}`, Refused: []string{"spec.synchronous.mode"},
		Says: "set spec.replicas to at least 2",
	},
	"synchronous and down to one instance": {
		Old: `{replicas: 3, synchronous: {mode: quorum}}`, New: `{replicas: 1, synchronous: {mode: quorum}}`,
		Refused: []string{"spec.synchronous.mode"}, Says: "or leave spec.synchronous out",
	},
	"synchronous off with one instance": {New: `{replicas: 1, synchronous: {mode: "off"}}`, Warns: "spec.replicas: 1"},
	"synchronous off with a number": {
		New: `{replicas: 3, synchronous: {mode: "off", number: 2}}`, Warns: "mean nothing while mode is off",
	},
	"synchronous with two instances": {
		New: `{replicas: 2, synchronous: {mode: quorum}}`, Warns: "writes wait while the only replica is down",
	},
	"synchronous with all replicas": {
		New: `{replicas: 3, synchronous: {mode: quorum, number: 2}}`, Warns: "writes wait while any replica is down",
	},
	"synchronous and commits that do not wait": {
		New:   `{replicas: 3, synchronous: {mode: quorum}, parameters: {Synchronous_commit: "local"}}`,
		Warns: "local acknowledges commits that no replica has",
	},
	"synchronous preferred and commits that do not wait": {
		New:   `{replicas: 3, synchronous: {mode: quorum, durability: preferred}, parameters: {synchronous_commit: "OFF"}}`,
		Warns: "off acknowledges commits that no replica has",
	},
	"synchronous and commits in memory": {
		New:   `{replicas: 3, synchronous: {mode: quorum}, parameters: {synchronous_commit: remote_write}}`,
		Warns: "remote_write loses commits",
	},
	"synchronous standbys by hand": {
		New:     `{replicas: 3, parameters: {synchronous_standby_names: "*"}}`,
		Refused: []string{"spec.parameters[synchronous_standby_names]"}, Says: "set spec.synchronous", NotInSchema: true,
	},

	"log without limit": {
		New:   `{replicas: 3, version: "17", parameters: {max_slot_wal_keep_size: "-1"}}`,
		Warns: "without a limit a replica that is away fills",
	},
	"log of most of the volume": {
		New:   `{replicas: 3, version: "17", storage: 10Gi, parameters: {Max_slot_wal_keep_size: "5121MB"}}`,
		Warns: "is over half of spec.storage",
	},
	"log of half of the volume": {New: `{replicas: 3, version: "17", storage: 10Gi, parameters: {max_slot_wal_keep_size: 5GB}}`},

	"failover": {
		New: `{replicas: 3, failover: {enabled: true, leaseDuration: 15s, suspicion: 2.5s, maxLag: 64Mi}}`,
	},
	"failover nothing set":  {New: `{replicas: 3, failover: {}}`},
	"failover bounds":       {New: `{replicas: 3, failover: {leaseDuration: 5s, suspicion: 500ms, maxLag: 0Mi}}`},
	"failover other bounds": {New: `{replicas: 3, failover: {leaseDuration: 60s, suspicion: 30s, maxLag: 1024Gi}}`},
	"failover disabled":     {New: `{replicas: 3, failover: {enabled: false}}`, Warns: "spec.failover.enabled: false"},
	"failover lease too short": {
		New: `{replicas: 3, failover: {leaseDuration: 4s}}`, Refused: []string{"spec.failover.leaseDuration"}, Says: "from 5s to 60s",
	},
	"failover lease too long":  {New: `{failover: {leaseDuration: 61s}}`, Refused: []string{"spec.failover.leaseDuration"}},
	"failover lease in halves": {New: `{failover: {leaseDuration: 7.5s}}`, Refused: []string{"spec.failover.leaseDuration"}},
	"failover lease in minutes": {
		New: `{failover: {leaseDuration: 1m}}`, Refused: []string{"spec.failover.leaseDuration"}, Says: "such as 10s",
	},
	"failover suspicion too short": {
		New: `{failover: {suspicion: 499ms}}`, Refused: []string{"spec.failover.suspicion"}, Says: "from 500ms to 30s",
	},
	"failover suspicion too long": {New: `{failover: {leaseDuration: 60s, suspicion: 30.001s}}`, Refused: []string{"spec.failover.suspicion"}},
	"failover suspicion unitless": {New: `{failover: {suspicion: "2"}}`, Refused: []string{"spec.failover.suspicion"}},
	"failover suspicion after the lease": {
		New: `{failover: {leaseDuration: 5s, suspicion: 5s}}`, Refused: []string{"spec.failover.suspicion"},
		Says: "must be less than spec.failover.leaseDuration, which is 5s",
	},
	"failover suspicion after the default lease": {
		New: `{failover: {suspicion: 12s}}`, Refused: []string{"spec.failover.suspicion"}, Says: "which is 10s when omitted",
	},
	"failover lease shortened below suspicion": {
		Old: `{failover: {leaseDuration: 30s, suspicion: 10s}}`, New: `{failover: {leaseDuration: 10s, suspicion: 10s}}`,
		Refused: []string{"spec.failover.suspicion"}, Says: "which is 10s",
	},
	"failover lease removed below suspicion": {
		Old: `{failover: {leaseDuration: 60s, suspicion: 30s}}`, New: `{failover: {suspicion: 30s}}`,
		Refused: []string{"spec.failover.suspicion"}, Says: "which is 10s when omitted",
	},
	"failover suspicion just below the lease": {New: `{replicas: 3, failover: {leaseDuration: 5s, suspicion: 4999ms}}`},
	"failover lease without unit":             {New: `{failover: {leaseDuration: "10"}}`, Refused: []string{"spec.failover.leaseDuration"}},
	"failover lag without unit":               {New: `{failover: {maxLag: "16777216"}}`, Refused: []string{"spec.failover.maxLag"}},
	"failover lag too large":                  {New: `{failover: {maxLag: 1025Gi}}`, Refused: []string{"spec.failover.maxLag"}, Says: "1024Gi"},
	"failover lag in Ti":                      {New: `{failover: {maxLag: 1Ti}}`, Refused: []string{"spec.failover.maxLag"}},
	"failover lag in MB":                      {New: `{failover: {maxLag: 16MB}}`, Refused: []string{"spec.failover.maxLag"}, Says: "such as 16Mi"},
	"failover lag negative":                   {New: `{failover: {maxLag: -1Mi}}`, Refused: []string{"spec.failover.maxLag"}},
	"failover mistakes at once": {
		New:     `{failover: {leaseDuration: 1s, suspicion: 1ms, maxLag: lots}}`,
		Refused: []string{"spec.failover.leaseDuration", "spec.failover.maxLag", "spec.failover.suspicion"},
	},
}

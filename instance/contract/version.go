package contract

// Version is the version of this program, operator and agent alike. The build sets it: `make build VERSION=v1.2.3`.
var Version = "dev"

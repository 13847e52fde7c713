// Command release makes the files of a release from the programs that hack/release.sh has built, and reads them back.
//
//	release make -version=v0.2.0 -registry=registry.example.com/multicidr -output=DIRECTORY
//	release providers -version=v0.2.0 -registry=registry.example.com/multicidr -output=DIRECTORY
//	release verify DIRECTORY
//
// docs/engineering/releasing.md lists the files. Equal sources and programs make equal bytes: no file has a time but that of the commit, and what comes from
// a map is sorted.
//
//	make.go        the order of all that follows
//	builds.go      the programs, and what the Go linker left in them
//	images.go      the archives of images
//	charts.go      the charts, as Helm's archives and as OCI image layouts
//	manifests.go   what to apply without Helm
//	providers.go   what clusterctl and the Cluster API operator install
//	commands.go    the command line tools
//	krew.go        how Krew installs the plugin for kubectl
//	licenses.go    the licences of all that is in the programs
//	sbom.go        the components of all programs, in CycloneDX
//	provenance.go  what it was made from, as an in-toto statement, and checksums
//	verify.go      all of that read back
package main

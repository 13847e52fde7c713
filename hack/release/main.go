package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: release make -version=v0.2.0 -registry=... -output=DIRECTORY, release providers with the same flags, or release verify DIRECTORY")
	}
	switch args[0] {
	case "make", "providers":
		r := release{}
		fs := flag.NewFlagSet(args[0], flag.ExitOnError)
		fs.StringVar(&r.root, "root", "../..", "the sources, with the programs in bin/images and bin/commands")
		fs.StringVar(&r.version, "version", "", "the version")
		fs.StringVar(&r.tag, "tag", "", "the tag of the images")
		fs.StringVar(&r.registry, "registry", "", "the first part of the names of the images")
		fs.StringVar(&r.output, "output", "", "the directory for the files")
		_ = fs.Parse(args[1:]) // ExitOnError
		if args[0] == "providers" {
			return r.providers()
		}
		return r.make()
	case "verify":
		fs := flag.NewFlagSet("verify", flag.ExitOnError)
		extract := fs.String("extract", "", "a directory for the programs of this platform")
		_ = fs.Parse(args[1:]) // ExitOnError
		return verify(fs.Arg(0), *extract)
	}
	return fmt.Errorf("there is no command %q: use make, providers or verify", args[0])
}

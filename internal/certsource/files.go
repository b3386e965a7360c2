package certsource

// This file holds the Source that reads certificates from files.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// rereads is the maximum number of reads in a row, without a pause, of files that are replaced while they are read.
	rereads = 3

	caFile = "the certificate of the CA that issued the serving certificate"

	// mountLink is the symbolic link with which the kubelet replaces all files of a mounted Secret at once.
	mountLink = "..data"
)

// Files is a Source that reads a certificate, its key and the CA's certificate from files, such as a mounted Secret or
// files that an agent writes. They are read again every Poll and compared by content, so no notification of a change is
// needed. All three are adopted together, when they match. It thus makes no difference whether they are replaced at
// once or one after the other. The fields must not change while Files runs.
type Files struct {
	Dir           string        // the folder of the files
	Cert, Key, CA string        // file names in Dir, or absolute; default tls.crt, tls.key, ca.crt
	Hosts         []string      // the certificate must be valid for them (see ca.ParseHosts)
	Poll          time.Duration // between two reads; 0 means DefaultPoll
	Now           func() time.Time
}

// Validate returns an error that describes an invalid field.
func (f *Files) Validate() error {
	if f.Dir == "" && !(filepath.IsAbs(f.Cert) && filepath.IsAbs(f.Key) && filepath.IsAbs(f.CA)) {
		return errors.New("certificate files need Dir, the folder that holds them")
	}
	_, err := ca.ParseHosts(f.Hosts)
	return about(f, err)
}

// Run implements Source.
func (f *Files) Run(ctx context.Context, deliver func(Material), waiting func(error)) error {
	out := newFeed(f.Hosts, f.Now, deliver, waiting)
	for ctx.Err() == nil {
		t, err := f.read()
		if err == nil {
			err = out.offerTexts(t)
		}
		if err != nil {
			out.wait(about(f, err))
		}
		_ = wait.Sleep(ctx, cmp.Or(f.Poll, DefaultPoll))
	}
	return nil
}

// Bundle implements Source. It reads only the CA's file.
func (f *Files) Bundle(context.Context) ([]byte, error) {
	_, _, name := f.names()
	t, err := f.readFile(name, caFile)
	return bundleOf(f, t, err)
}

func (f *Files) String() string {
	cert, key, ca := f.names()
	return fmt.Sprintf("certificate files %s, %s and %s in %s", cert, key, ca, cmp.Or(f.Dir, "/"))
}

func (f *Files) names() (cert, key, ca string) {
	return cmp.Or(f.Cert, defaultCert), cmp.Or(f.Key, defaultKey), cmp.Or(f.CA, defaultCA)
}

// read reads all files from the same version of the mount, if they are mounted.
func (f *Files) read() (t texts, err error) {
	link := filepath.Join(f.Dir, mountLink)
	cert, key, ca := f.names()
	var errs [3]error
	for range rereads {
		before, _ := os.Readlink(link) // an error results in "", both times
		t.certificate, errs[0] = f.readFile(cert, "the serving certificate, and intermediate certificates behind it")
		t.key, errs[1] = f.readFile(key, "the private key of the serving certificate")
		t.ca, errs[2] = f.readFile(ca, caFile)
		if after, _ := os.Readlink(link); after == before {
			break
		}
	}
	return t, errors.Join(errs[:]...)
}

func (f *Files) readFile(name, what string) (text, error) {
	path := name
	if !filepath.IsAbs(name) {
		path = filepath.Join(f.Dir, name)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return text{}, fmt.Errorf("%s does not exist (yet); create it with %s, or configure another file", path, what)
	case err == nil && !info.Mode().IsRegular(): // opening a pipe would wait for its other end
		return text{}, fmt.Errorf("%s is not a file; replace it with %s, or configure another file", path, what)
	}
	content, err := ca.ReadFile(path)
	if err != nil {
		return text{}, fmt.Errorf("make %s readable for user %d: %w", path, os.Getuid(), err)
	}
	if len(content) > ca.MaxFile {
		return text{}, fmt.Errorf("%s is larger than %d bytes; it may hold only %s", path, ca.MaxFile, what)
	}
	return text{name: name, pem: content}, nil
}

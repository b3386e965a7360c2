package main

// This file downloads kube-apiserver and etcd from the releases that setup-envtest's index lists, which takes a minute
// and not many. The index and the archives come over the network, so nothing of them is run or kept before its checksum
// has been compared.

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// envtestIndex is the index that setup-envtest reads.
	envtestIndex = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"

	indexVariable = "EIRINIX_ENVTEST_INDEX"
	indexOff      = "off"

	maxIndex   = 8 << 20 // bytes; the index had 0.2 MB in 2026
	maxArchive = 1 << 30
	maxBinary  = 1 << 30

	// inEnvtest is the folder of the binaries in an archive.
	inEnvtest = "controller-tools/envtest"
)

// archive is an archive that the index lists.
type archive struct {
	version string // of Kubernetes
	name    string
	hash    string // SHA-512, in hexadecimal
	link    string
}

// downloader takes binaries from an index.
type downloader struct {
	index    string
	patience time.Duration // for the index as a whole
	stall    time.Duration // for the next bytes of an archive
	progress *progress
}

func newDownloader(index string, p *progress) *downloader {
	return &downloader{index: index, patience: 10 * time.Second, stall: 20 * time.Second, progress: p}
}

func (d *downloader) off() bool { return d == nil || d.index == indexOff || d.index == "" }

// folder returns the name of the cache folder of an archive.
func (a archive) folder() string {
	return fmt.Sprintf("%s-%s-%s-envtest-%.12s", a.version, runtime.GOOS, runtime.GOARCH, a.hash)
}

// downloaded returns the folder of the newest patch release of a minor release that has been downloaded before, if any.
func downloaded(root, minor string) string {
	found, err := filepath.Glob(filepath.Join(root, fmt.Sprintf("v%s.*-%s-%s-envtest-*", minor, runtime.GOOS, runtime.GOARCH)))
	if err != nil {
		return ""
	}

	slices.SortFunc(found, func(a, b string) int { return patchOf(filepath.Base(a)) - patchOf(filepath.Base(b)) })

	for _, dir := range slices.Backward(found) {
		if complete(dir, downloadable) {
			return dir
		}
	}

	return ""
}

var patch = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.([0-9]+)(-|$)`)

// patchOf returns 1 for v1.37.1.
func patchOf(version string) int {
	if match := patch.FindStringSubmatch(version); match != nil {
		n, _ := strconv.Atoi(match[1])

		return n
	}

	return -1
}

// choose returns the archive for this machine: of the wanted version, or else of the newest patch release of its minor
// release.
func (d *downloader) choose(ctx context.Context, wanted string) (archive, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.patience, fmt.Errorf("no answer within %s", d.patience))
	defer cancel()

	body, err := get(ctx, d.index)
	if err != nil {
		return archive{}, err
	}
	defer body.Close()

	text, err := io.ReadAll(io.LimitReader(body, maxIndex+1))
	if err != nil {
		return archive{}, errors.Join(err, context.Cause(ctx))
	}

	if len(text) > maxIndex {
		return archive{}, fmt.Errorf("it is larger than %d bytes", maxIndex)
	}

	all, err := parseIndex(text)
	if err != nil {
		return archive{}, err
	}

	var chosen archive

	for _, a := range all {
		name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", a.version, runtime.GOOS, runtime.GOARCH)
		if a.name != name || minorOf(a.version) != minorOf(wanted) || !noPreview.MatchString(a.version) {
			continue
		}

		if a.version == wanted {
			chosen = a

			break
		}

		if patchOf(a.version) > patchOf(chosen.version) {
			chosen = a
		}
	}

	if chosen.name == "" {
		return archive{}, fmt.Errorf("it has no Kubernetes %s for %s/%s", minorOf(wanted), runtime.GOOS, runtime.GOARCH)
	}

	return chosen, chosen.check(d.index)
}

// noPreview matches a version that is no preview.
var noPreview = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

var sha512Hex = regexp.MustCompile(`^[0-9a-f]{128}$`)

// check returns an error if an archive has no usable checksum, or a less safe address than the index has.
func (a archive) check(index string) error {
	if !sha512Hex.MatchString(a.hash) {
		return fmt.Errorf("%s has no SHA-512 checksum: %.140q", a.name, a.hash)
	}

	from, err := url.Parse(index)
	if err != nil {
		return err
	}

	link, err := url.Parse(a.link)
	if err != nil || link.Scheme != "https" && link.Scheme != from.Scheme || link.Host == "" {
		return fmt.Errorf("%s has the address %.200q, which is not https", a.name, a.link)
	}

	return nil
}

// parseIndex reads the index. It is YAML that a program writes: releases, versions, archives, and two fields each,
// indented by two spaces more each time. Any other form is an error.
func parseIndex(text []byte) (all []archive, err error) {
	scanner := bufio.NewScanner(bytes.NewReader(text))
	began := false
	version, name := "", ""

	for n := 1; scanner.Scan(); n++ {
		line := scanner.Text()
		trimmed := strings.TrimSpace(line)

		if trimmed == "" || strings.HasPrefix(trimmed, "#") || trimmed == "---" {
			continue
		}

		key, value, ok := strings.Cut(trimmed, ":")
		value = strings.Trim(strings.TrimSpace(value), `"'`)

		switch indent := len(line) - len(strings.TrimLeft(line, " ")); {
		case !ok:
			return nil, fmt.Errorf("line %d of it is no field: %.80q", n, line)
		case indent == 0 && key == "releases":
			began = true
		case indent == 2 && began && value == "":
			version = key
		case indent == 4 && version != "" && value == "":
			name = key
			all = append(all, archive{version: version, name: name})
		case indent == 6 && name != "" && key == "hash":
			all[len(all)-1].hash = value
		case indent == 6 && name != "" && key == "selfLink":
			all[len(all)-1].link = value
		case indent == 6 && name != "": // a field of a later form
		default:
			return nil, fmt.Errorf("line %d of it is not of the form that is known: %.80q", n, line)
		}
	}

	if err := scanner.Err(); err != nil {
		return nil, err
	}

	if !began {
		return nil, errors.New("it has no releases")
	}

	return all, nil
}

// get returns the body of a response.
func get(ctx context.Context, address string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}

		return nil, err
	}

	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()

		return nil, fmt.Errorf("%s answers %s", address, resp.Status)
	}

	return &sized{resp.Body, resp.ContentLength}, nil
}

// sized is a body of which the size is known, unless it is negative.
type sized struct {
	io.ReadCloser
	size int64
}

// download puts the binaries of an archive into a folder.
func (d *downloader) download(ctx context.Context, a archive, dir string) (err error) {
	file, err := os.Create(filepath.Join(dir, "archive"))
	if err != nil {
		return fmt.Errorf("say with -dir where to build: %w", err)
	}

	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()

	if err := d.fetch(ctx, a, file); err != nil {
		return fmt.Errorf("%s: %w", a.link, err)
	}

	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}

	if err := extract(file, dir); err != nil {
		return fmt.Errorf("%s: %w", a.link, err)
	}

	return nil
}

// fetch downloads an archive into a file, and compares its checksum.
func (d *downloader) fetch(ctx context.Context, a archive, file io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	stalled := time.AfterFunc(d.stall, func() { cancel(fmt.Errorf("no byte came for %s", d.stall)) })
	defer stalled.Stop()

	body, err := get(ctx, a.link)
	if err != nil {
		return err
	}
	defer body.Close()

	size := int64(-1)
	if s, ok := body.(*sized); ok {
		size = s.size
	}

	defer d.progress.finish()

	hash, began, done := sha512.New(), time.Now(), int64(0)
	buffer := make([]byte, 256<<10)

	for {
		n, err := body.Read(buffer)
		if n > 0 {
			stalled.Reset(d.stall)

			if done += int64(n); done > maxArchive {
				return fmt.Errorf("it is larger than %d bytes", maxArchive)
			}

			if _, err := io.MultiWriter(hash, file).Write(buffer[:n]); err != nil {
				return fmt.Errorf("make room, or say with -dir where to build: %w", err)
			}

			d.progress.downloading(a.name, done, size, time.Since(began))
		}

		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}

			return fmt.Errorf("it broke off after %d bytes: %w", done, err)
		}
	}

	if got := hex.EncodeToString(hash.Sum(nil)); got != a.hash {
		return fmt.Errorf("its SHA-512 is %.16s..., but the index says %.16s...; it is not used", got, a.hash)
	}

	return nil
}

// extract takes the binaries out of an archive. It makes no other file, whatever the archive holds.
func extract(file io.Reader, dir string) error {
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("it is no archive: %w", err)
	}

	found := map[string]bool{}

	for archived := tar.NewReader(unzipped); ; {
		header, err := archived.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("the archive is broken: %w", err)
		}

		name := path.Base(header.Name)
		if !slices.Contains(downloadable, name) || path.Clean(header.Name) != path.Join(inEnvtest, name) {
			continue // kubectl, a folder, or something that is not wanted here
		}

		if header.Typeflag != tar.TypeReg || header.Size > maxBinary || found[name] {
			return fmt.Errorf("%s in it is no file of a usual size, or is there twice", header.Name)
		}

		found[name] = true

		if err := write(filepath.Join(dir, name), archived, header.Size); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}

	for _, name := range downloadable {
		if !found[name] {
			return fmt.Errorf("it lacks %s/%s", inEnvtest, name)
		}
	}

	return nil
}

func write(name string, from io.Reader, size int64) (err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, file.Close()) }()

	_, err = io.CopyN(file, from, size)

	return err
}

package certsource_test

// This file is about certificates in files, which others write in any order, and in a Secret that an issuer maintains, before
// an API server of a few lines.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// write replaces one file as a careless tool does: in place.
func write(dir, name string, content []byte) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(dir, name), content, 0o600)).To(Succeed())
}

func writeAll(dir string, i issued) {
	GinkgoHelper()
	write(dir, "tls.crt", i.certificate)
	write(dir, "tls.key", i.key)
	write(dir, "ca.crt", i.ca)
}

// mount writes a Secret volume as the kubelet does: a folder with a new name, a link to it that is swapped by a
// rename, and the old folder removed.
func mount(dir string, generation int, i issued) {
	GinkgoHelper()
	name := fmt.Sprintf("..2030_01_01_00_00_00.%09d", generation)
	Expect(os.Mkdir(filepath.Join(dir, name), 0o700)).To(Succeed())
	writeAll(filepath.Join(dir, name), i)
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	Expect(os.Symlink(name, filepath.Join(dir, "..data_tmp"))).To(Succeed())
	Expect(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))).To(Succeed())
	if old != "" {
		Expect(os.RemoveAll(filepath.Join(dir, old))).To(Succeed())
		return
	}
	for _, file := range []string{"tls.crt", "tls.key", "ca.crt"} {
		Expect(os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file))).To(Succeed())
	}
}

var _ = Describe("Files", func() {
	var dir string
	var r *recorder
	var files *certsource.Files

	BeforeEach(func() {
		dir, r = GinkgoT().TempDir(), newRecorder()
		files = &certsource.Files{Dir: dir, Hosts: hosts, Poll: time.Millisecond, Now: time.Now}
	})

	It("waits for files that are not there yet, names them and the remedy, and delivers them once", func() {
		run(files, r)
		Eventually(r.reason).Should(And(
			ContainSubstring(filepath.Join(dir, "tls.crt")+" does not exist (yet); create it with the serving certificate"),
			ContainSubstring(filepath.Join(dir, "tls.key")+" does not exist (yet)"),
			ContainSubstring(filepath.Join(dir, "ca.crt")+" does not exist (yet)"),
		))
		i := issue()
		writeAll(dir, i)
		Eventually(r.serial).Should(Equal(serialOf(i)))
		Expect(r.bundle()).To(Equal(string(i.ca)))
		Expect(r.reason()).To(BeEmpty())
	})

	It("takes every swap of a mounted Secret as a whole", func() {
		authority := newAuthority()
		mount(dir, 0, issueBy(authority, hosts, day, time.Now()))
		files.Poll = 20 * time.Microsecond
		run(files, r)
		for generation := range 40 {
			i := issue() // of another CA each time, so that no two files of different generations fit
			mount(dir, generation+1, i)
			Eventually(r.serial).WithPolling(time.Millisecond).Should(Equal(serialOf(i)))
		}
		Expect(r.allReasons()).To(BeEmpty(), "no swap is seen half done")
	})

	DescribeTable("takes files that are written one after the other when all of them fit", func(order ...string) {
		first, second := issue(), issue()
		writeAll(dir, first)
		run(files, r)
		Eventually(r.serial).Should(Equal(serialOf(first)))
		contents := map[string][]byte{"tls.crt": second.certificate, "tls.key": second.key, "ca.crt": second.ca}
		for n, file := range order {
			if n > 0 {
				Eventually(r.reason).ShouldNot(BeEmpty(), "after %v", order[:n])
				Expect(r.serial()).To(Equal(serialOf(first)), "the last good one stays in use")
			}
			write(dir, file, contents[file])
		}
		Eventually(r.serial).Should(Equal(serialOf(second)))
		Expect(r.deliveries()).To(Equal(2))
		Expect(r.bundle()).To(Equal(string(second.ca)))
	},
		Entry(nil, "tls.crt", "tls.key", "ca.crt"),
		Entry(nil, "tls.key", "ca.crt", "tls.crt"),
		Entry(nil, "ca.crt", "tls.crt", "tls.key"),
	)

	It("does not take half a bundle, though it would do for now", func() {
		i := issue()
		writeAll(dir, i)
		other := newAuthority().CertificatePEM
		write(dir, "ca.crt", join(i.ca, other[:len(other)/2]))
		run(files, r)
		Eventually(r.reason).Should(ContainSubstring("ca.crt is cut off"))
		write(dir, "ca.crt", join(i.ca, other))
		Eventually(r.bundle).Should(Equal(string(i.ca) + string(other)))
		Expect(r.deliveries()).To(Equal(1))
	})

	It("reads other names, also elsewhere", func() {
		i := issue()
		elsewhere := filepath.Join(GinkgoT().TempDir(), "root.pem")
		Expect(os.WriteFile(elsewhere, i.ca, 0o600)).To(Succeed())
		write(dir, "server.pem", i.certificate)
		write(dir, "server-key.pem", i.key)
		files.Cert, files.Key, files.CA = "server.pem", "server-key.pem", elsewhere
		run(files, r)
		Eventually(r.serial).Should(Equal(serialOf(i)))
		Expect(files.String()).To(Equal("certificate files server.pem, server-key.pem and " + elsewhere + " in " + dir))
	})

	DescribeTable("names the fault of a file", func(file, reason string, content func(issued) []byte) {
		i := issue()
		writeAll(dir, i)
		write(dir, file, content(i))
		run(files, r)
		Eventually(r.reason).Should(And(ContainSubstring(reason), HavePrefix("certificate files ")))
		Expect(r.deliveries()).To(BeZero())
		for _, line := range strings.Split(string(i.key), "\n")[1:3] {
			Expect(strings.Join(r.allReasons(), "\n")).NotTo(ContainSubstring(line), "no part of the key")
		}
	},
		Entry("empty certificate", "tls.crt", "tls.crt and tls.key: there is no PEM certificate", func(issued) []byte { return nil }),
		Entry("empty CA", "ca.crt", "ca.crt holds no readable PEM certificate; write", func(issued) []byte { return nil }),
		Entry("truncated certificate", "tls.crt", "tls.crt is cut off", func(i issued) []byte { return i.certificate[:len(i.certificate)/2] }),
		Entry("another key", "tls.key", "the private key does not match the certificate of", func(issued) []byte { return PKCS8(NewKey()) }),
		Entry("certificate in place of the key", "tls.key", "tls.key needs the key of the serving certificate: no PEM private key", func(i issued) []byte { return i.certificate }),
		Entry("CA before the certificate", "tls.crt", "must stand before those of CAs", func(i issued) []byte { return join(i.ca, i.certificate) }),
		Entry("another CA", "ca.crt", "the CA bundle does not verify the certificate", func(issued) []byte { return newAuthority().CertificatePEM }),
		Entry("much too large", "ca.crt", "is larger than 1048576 bytes", func(i issued) []byte { return join(i.ca, make([]byte, 1<<20)) }),
	)

	It("reports a path that is not a file, and does not read it", func() {
		writeAll(dir, issue())
		Expect(os.Remove(filepath.Join(dir, "ca.crt"))).To(Succeed())
		Expect(os.Mkdir(filepath.Join(dir, "ca.crt"), 0o700)).To(Succeed())
		run(files, r)
		Eventually(r.reason).Should(ContainSubstring("ca.crt is not a file"))
	})

	It("needs its required fields", func() {
		for message, f := range map[string]*certsource.Files{
			"need Dir":          {Hosts: hosts},
			"at least one host": {Dir: dir},
			"leave out the":     {Dir: dir, Hosts: []string{"https://x"}},
		} {
			Expect(f.Validate()).To(MatchError(ContainSubstring(message)))
		}
	})
})

func TestFilesFollowChangesAndRemindOnceAMinute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, dir := newRecorder(), t.TempDir()
		background(t, &certsource.Files{Dir: dir, Hosts: hosts, Now: time.Now}, r)
		passes(10*time.Minute - time.Second)
		Expect(r.allReasons()).To(HaveLen(10))
		// becomes writes files, and lets one poll see them.
		becomes := func(write func()) string {
			write()
			passes(certsource.DefaultPoll + time.Second)
			return r.reason()
		}
		i, next := issue(), newAuthority().CertificatePEM
		Expect(becomes(func() { writeAll(dir, i) })).To(BeEmpty())
		Expect(becomes(func() { write(dir, "ca.crt", join(next, i.ca)) })).To(BeEmpty())
		Expect(r.bundle()).To(Equal(string(next)+string(i.ca)), "another bundle, the same certificate")
		Expect(becomes(func() { write(dir, "ca.crt", join([]byte("# comment\n"), next, i.ca, next)) })).To(BeEmpty())
		Expect(r.deliveries()).To(Equal(2), "it holds the same certificates")

		Expect(becomes(func() { Expect(os.Remove(filepath.Join(dir, "tls.key"))).To(Succeed()) })).To(ContainSubstring("tls.key does not exist"))
		Expect(becomes(func() { write(dir, "tls.key", i.key) })).To(BeEmpty())
		Expect(r.deliveries()).To(Equal(3), "the same once more: the wait is over")
		Expect(r.serial()).To(Equal(serialOf(i)), "the last good one stays in use")

		passes(91 * time.Minute)
		Expect(r.deliveries()).To(Equal(3))
		Expect(becomes(func() { writeAll(dir, issueFor(hosts[:1], day, time.Now())) })).To(ContainSubstring(`is not for host "127.0.0.1"`))
		Expect(becomes(func() { writeAll(dir, issueFor(hosts, day, time.Now().Add(2*day))) })).To(ContainSubstring("is not valid before"))
		Expect(becomes(func() { writeAll(dir, issueFor(hosts, time.Hour, time.Now())) })).To(BeEmpty())
		passes(2 * time.Hour)
		Expect(r.reason()).To(ContainSubstring("has expired at " + r.last().Certificate.Leaf.NotAfter.UTC().Format(time.RFC3339)))
		Expect(r.faults()).To(BeEmpty())
	})
}

const secretName = "webhook-tls"

func data(i issued) map[string][]byte {
	return map[string][]byte{"tls.crt": i.certificate, "tls.key": i.key, "ca.crt": i.ca}
}

// vault is an API server that holds a Secret, which may be read and not watched.
type vault struct{ held shared[*corev1.Secret] }

func (v *vault) RoundTrip(r *http.Request) (*http.Response, error) {
	held := v.held.get().DeepCopy()
	switch {
	case path.Base(r.URL.Path) != secretName:
		return failed(http.StatusForbidden, metav1.StatusReasonForbidden), nil
	case held == nil:
		return failed(http.StatusNotFound, metav1.StatusReasonNotFound), nil
	}
	held.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	held.Namespace, held.Name, held.ResourceVersion = "cf", secretName, "1"
	return answered(http.StatusOK, bytes.NewReader(Must(json.Marshal(held)))), nil
}

func secretAt(server http.RoundTripper) *certsource.Secret {
	return &certsource.Secret{Config: at(server), Namespace: "cf", Name: secretName, Hosts: hosts, Now: time.Now}
}

func TestSecretKeepsTheLastGoodOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v, r := &vault{}, newRecorder()
		background(t, secretAt(v), r)
		becomes := func(data map[string][]byte, kind ...corev1.SecretType) string {
			held := &corev1.Secret{Data: data}
			for _, k := range kind {
				held.Type = k
			}
			v.held.set(held)
			passes(time.Minute)
			return r.reason()
		}
		first, second, root := issue(), issueFor(hosts, 2*time.Hour, time.Now()), newAuthority()
		cross := ca.EncodeCertificate(Must(root.CrossSign(first.authority.Certificate, time.Now())))
		Expect(becomes(map[string][]byte{"tls.crt": first.certificate, "tls.key": first.key})).To(And(
			ContainSubstring("ca.crt is missing"), ContainSubstring("add the CA's certificate to the Secret as ca.crt")))
		Expect(becomes(map[string][]byte{"tls.crt": join(first.certificate, cross), "tls.key": first.key})).To(ContainSubstring("ca.crt is missing"), "an intermediate CA is no root")
		Expect(r.deliveries()).To(BeZero())
		Expect(becomes(map[string][]byte{"tls.crt": join(first.certificate, first.ca), "tls.key": first.key}, corev1.SecretTypeOpaque)).To(BeEmpty())
		Expect(r.bundle()).To(Equal(string(first.ca)), "the end of the chain")

		Expect(becomes(map[string][]byte{"tls.crt": second.certificate, "tls.key": first.key, "ca.crt": second.ca})).To(ContainSubstring("tls.crt and tls.key: the private key does not match"))
		Expect(becomes(map[string][]byte{"tls.crt": second.certificate, "tls.key": second.key, "ca.crt": first.ca})).To(ContainSubstring("the CA bundle does not verify"))
		Expect(becomes(map[string][]byte{"tls.key": second.key})).To(ContainSubstring("tls.crt is missing or empty"))
		Expect(becomes(data(issueFor([]string{"other.cf.svc"}, day, time.Now())))).To(ContainSubstring("is not for host"))
		v.held.set(nil)
		passes(time.Minute)
		Expect(r.reason()).To(ContainSubstring("does not exist"))
		Expect(r.deliveries()).To(Equal(1))
		Expect(becomes(data(second))).To(BeEmpty())
		Expect(r.serial()).To(Equal(serialOf(second)))

		passes(2 * time.Hour)
		Expect(r.reason()).To(ContainSubstring("has expired"), "though nothing changes")
		v.held.set(&corev1.Secret{Data: v.held.get().Data, Immutable: new(true)})
		passes(time.Minute)
		Expect(r.reason()).To(And(ContainSubstring("has expired"), ContainSubstring("the Secret is immutable, so delete it")))
		Expect(r.faults()).To(BeEmpty())
	})
}

func TestSecretReportsWhyItCannotBeRead(t *testing.T) {
	for reason, answer := range map[string]RoundTrip{
		`grant get, list and watch on secrets with resourceNames ["webhook-tls"] in namespace "cf"`: func(*http.Request) (*http.Response, error) {
			return failed(http.StatusForbidden, metav1.StatusReasonForbidden), nil
		},
		"the network is down": func(*http.Request) (*http.Response, error) { return nil, errors.New("the network is down") },
		"the API server has not sent it yet": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				source, r := secretAt(answer), newRecorder()
				background(t, source, r)
				passes(6 * time.Second)
				Expect(r.reason()).To(And(HavePrefix("Secret cf/webhook-tls: it cannot be read: "), ContainSubstring(reason)))
				bundle, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				Expect(source.Bundle(bundle)).Error().To(MatchError(HavePrefix("Secret cf/webhook-tls: ")))
			})
		})
	}
}

var _ = It("Secret without a cluster needs its required fields", func() {
	Expect((&certsource.Secret{Name: "x", Hosts: hosts}).Validate()).To(MatchError(ContainSubstring("a Namespace and a Name")))
	Expect((&certsource.Secret{Namespace: "cf", Name: "x"}).Validate()).To(MatchError(ContainSubstring("at least one host")))
})

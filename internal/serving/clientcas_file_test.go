package serving_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

var _ = Describe("A file of client CAs", func() {
	It("is read, and an error names the file that cannot be used", func(ctx SpecContext) {
		authority := leafCA(GinkgoTB(), leafYear, time.Now())
		accepted := connectionOf(clientCert(GinkgoTB(), authority, "any"))
		path := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		clients := &serving.Clients{}
		file := &serving.ClientCAs{Clients: clients, File: path}
		Expect(file.Read(ctx)).To(MatchError(ContainSubstring(path)))
		Expect(os.WriteFile(path, authority.CertificatePEM, 0o600)).To(Succeed())
		Expect(file.Read(ctx)).To(Succeed())
		Expect(clients.Check(accepted)).To(Succeed())
		for _, bad := range []string{"", "garbage", string(authority.CertificatePEM) + strings.Repeat("# longer than can be\n", 1<<16)} {
			Expect(os.WriteFile(path, []byte(bad), 0o600)).To(Succeed())
			Expect(file.Read(ctx)).To(MatchError(ContainSubstring(path)))
			Expect(clients.Check(accepted)).To(Succeed())
		}
		file.File = GinkgoT().TempDir()
		Expect(file.Read(ctx)).NotTo(Succeed(), "a directory")
	})
})

// look is as long as Follow may take to see a change.
const look = 5 * time.Second

func TestFollowAFileSeesEveryKindOfChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		first, second := leafCA(t, leafYear, time.Now()), leafCA(t, leafYear, time.Now())
		byFirst, bySecond := connectionOf(clientCert(t, first, "any")), connectionOf(clientCert(t, second, "any"))
		dir := t.TempDir()
		path := filepath.Join(dir, "ca.crt")
		clients := &serving.Clients{}
		follow(t, clients, path, logr.Discard())

		g.Expect(clients.Check(byFirst)).NotTo(Succeed(), "there is no file yet")
		g.Expect(os.WriteFile(path, first.CertificatePEM, 0o600)).To(Succeed())
		passes(look)
		g.Expect(clients.Check(byFirst)).To(Succeed(), "appeared")
		g.Expect(clients.Check(bySecond)).NotTo(Succeed())

		info, err := os.Stat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(path, ca.Bundle(first.CertificatePEM, second.CertificatePEM), 0o600)).To(Succeed())
		g.Expect(os.Chtimes(path, info.ModTime(), info.ModTime())).To(Succeed())
		passes(look)
		g.Expect(clients.Check(bySecond)).To(Succeed(), "written over, within the same tick of the file's clock")

		g.Expect(os.WriteFile(path+".new", first.CertificatePEM, 0o600)).To(Succeed())
		g.Expect(os.Rename(path+".new", path)).To(Succeed())
		passes(look)
		g.Expect(clients.Check(bySecond)).NotTo(Succeed(), "replaced")

		g.Expect(os.Remove(path)).To(Succeed())
		passes(look)
		g.Expect(clients.Check(byFirst)).To(Succeed(), "removed: the last good ones stay")
	})
}

// A ConfigMap or Secret that is mounted: ca.crt -> ..data/ca.crt, ..data -> a directory per version.
func TestFollowAFileSeesAMountedConfigMapChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		first, second := leafCA(t, leafYear, time.Now()), leafCA(t, leafYear, time.Now())
		bySecond := connectionOf(clientCert(t, second, "any"))
		dir := t.TempDir()
		publish := func(version string, bundle []byte) {
			g.Expect(os.Mkdir(filepath.Join(dir, version), 0o700)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(dir, version, "ca.crt"), bundle, 0o600)).To(Succeed())
			g.Expect(os.Symlink(version, filepath.Join(dir, "..data_tmp"))).To(Succeed())
			g.Expect(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))).To(Succeed())
		}
		publish("..2030_1", first.CertificatePEM)
		g.Expect(os.Symlink(filepath.Join("..data", "ca.crt"), filepath.Join(dir, "ca.crt"))).To(Succeed())
		clients := &serving.Clients{}
		follow(t, clients, filepath.Join(dir, "ca.crt"), logr.Discard())
		g.Expect(clients.Check(connectionOf(clientCert(t, first, "any")))).To(Succeed(), "read at once")
		g.Expect(clients.Check(bySecond)).NotTo(Succeed())
		publish("..2030_2", second.CertificatePEM)
		passes(look)
		g.Expect(clients.Check(bySecond)).To(Succeed())
	})
}

func TestFollowAFileLogsAFailureOnceAndItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var logs logLines
		authority := leafCA(t, leafYear, time.Now())
		path := filepath.Join(t.TempDir(), "ca.crt")
		follow(t, &serving.Clients{}, path, logs.logger())
		passes(10 * look)
		g.Expect(logs.with("could not be read")).To(HaveLen(1), logs.String)
		g.Expect(os.WriteFile(path, []byte("garbage"), 0o600)).To(Succeed())
		passes(10 * look)
		g.Expect(logs.with("no readable CA certificate")).To(HaveLen(1), logs.String)
		g.Expect(os.WriteFile(path, authority.CertificatePEM, 0o600)).To(Succeed())
		passes(10 * look)
		g.Expect(logs.with("client CAs read")).To(HaveLen(1), logs.String)
		for again := range 2 {
			g.Expect(os.Remove(path)).To(Succeed())
			passes(2 * look)
			g.Expect(logs.with("could not be read")).To(HaveLen(3+again), logs.String)
			g.Expect(os.WriteFile(path, authority.CertificatePEM, 0o600)).To(Succeed())
			passes(2 * look)
		}
		g.Expect(logs.with("client CAs read")).To(HaveLen(1), "they were the same: "+logs.String())
	})
}

// follow runs Follow until the test ends, and has seen its first look.
func follow(t *testing.T, clients *serving.Clients, path string, log logr.Logger) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { (&serving.ClientCAs{Clients: clients, File: path, Log: log}).Follow(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
}

// passes lets fake time pass.
func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

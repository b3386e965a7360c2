package serving_test

// This file is about the CAs of clients: where they are read from, and how their changes are followed.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/serving"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("The CAs of clients", func() {
	It("are read from text or from a file, and errors name the option and the file", func(ctx SpecContext) {
		authority := NewCA(year, time.Now())
		accepted := connectionOf(clientCert(authority, "any"))
		text := &serving.ClientCAs{Clients: &serving.Clients{}, PEM: authority.CertificatePEM}
		Expect(text.Read(ctx)).To(Succeed())
		Expect(text.Clients.Check(accepted)).To(Succeed())
		text.PEM = []byte("garbage")
		Expect(text.Read(ctx)).To(MatchError(ContainSubstring("ManagerOptions.ClientCA.PEM")))
		text.Follow(ctx) // has nothing to follow

		path := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		file := &serving.ClientCAs{Clients: &serving.Clients{}, File: path}
		fails := MatchError(And(ContainSubstring("ManagerOptions.ClientCA.File"), ContainSubstring(path)))
		Expect(file.Read(ctx)).To(fails)
		Expect(os.WriteFile(path, authority.CertificatePEM, 0o600)).To(Succeed())
		Expect(file.Read(ctx)).To(Succeed())
		for _, bad := range []string{"", string(authority.CertificatePEM) + strings.Repeat("# longer than can be\n", 1<<16)} {
			Expect(os.WriteFile(path, []byte(bad), 0o600)).To(Succeed())
			Expect(file.Read(ctx)).To(fails)
			Expect(file.Clients.Check(accepted)).To(Succeed())
		}
	})

	It("are not known when the ConfigMap cannot be read in time", func(ctx SpecContext) {
		cas := inConfigMap(&configMap{}, GinkgoLogr)
		over, cancel := context.WithCancel(ctx)
		cancel()
		Expect(cas.Read(over)).To(And(MatchError(ContainSubstring("ConfigMap ca could not be read")), MatchError(context.Canceled)))
	})
})

// configMap is an API server that holds one ConfigMap, or none.
type configMap struct {
	mu   sync.Mutex
	data map[string]string
	n    int
}

func (c *configMap) set(data map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = data
	c.n++
}

func (c *configMap) RoundTrip(*http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	code, text := http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	if c.data != nil {
		data, err := json.Marshal(c.data)
		if err != nil {
			return nil, err
		}
		code = http.StatusOK
		text = fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"ca","namespace":"kube-system","uid":"u","resourceVersion":"%d"},"data":%s}`, c.n, data)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// inConfigMap are CAs in a ConfigMap that may be read, and not watched.
func inConfigMap(server *configMap, log logr.Logger) *serving.ClientCAs {
	GinkgoHelper()
	cas := &serving.ClientCAs{
		Clients: &serving.Clients{}, ConfigMap: types.NamespacedName{Namespace: "kube-system", Name: "ca"}, Key: "ca.crt", Log: log,
	}
	cas.Objects = Must(cluster.NewObjects(&rest.Config{Host: "https://api.example.org", Transport: server}, log, cluster.Followed{
		Object: cas.Empty(), Access: func(context.Context) (cluster.Access, error) { return cluster.Access{Get: true}, nil },
	}))
	return cas
}

// follow runs Follow until the test ends.
func follow(t *testing.T, cas *serving.ClientCAs) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { cas.Follow(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	passes(0)
}

func TestClientCAsFollowAConfigMap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := NewCA(year, time.Now()), NewCA(year, time.Now())
		byFirst, bySecond := connectionOf(clientCert(first, "any")), connectionOf(clientCert(second, "any"))
		server, logs := &configMap{}, &logLines{}
		cas := inConfigMap(server, logs.logger())
		follow(t, cas)
		becomes := func(data map[string]string) error {
			server.set(data)
			passes(40 * time.Second) // it is read every half minute
			return cas.Read(t.Context())
		}
		Expect(becomes(nil)).To(MatchError(And(ContainSubstring("ManagerOptions.ClientCA.ConfigMap kube-system/ca"), ContainSubstring("needs get, list and watch"))))
		Expect(becomes(map[string]string{"other": ""})).To(MatchError(ContainSubstring(`it has no key "ca.crt"`)))
		Expect(becomes(map[string]string{"ca.crt": string(first.CertificatePEM)})).To(Succeed())
		Expect(cas.Clients.Check(byFirst)).To(Succeed())

		server.set(map[string]string{"ca.crt": string(second.CertificatePEM)})
		passes(40 * time.Second)
		Expect(cas.Clients.Check(bySecond)).To(Succeed(), "a change is taken over, without a Read")
		Expect(cas.Clients.Check(byFirst)).NotTo(Succeed())
		for _, broken := range []map[string]string{{"ca.crt": "garbage"}, {}, nil} {
			before := len(logs.with("the last good ones stay"))
			server.set(broken)
			passes(40 * time.Second)
			Expect(cas.Clients.Check(bySecond)).To(Succeed(), "the last good ones stay in force")
			Expect(len(logs.with("the last good ones stay"))).To(BeNumerically(">", before), logs.String)
		}
		Expect(logs.with("client CAs read")).To(HaveLen(2), logs.String)
	})
}

// look is as long as Follow may take to see that a file has changed.
const look = 5 * time.Second

func TestClientCAsFollowEveryKindOfChangeOfAFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := NewCA(year, time.Now()), NewCA(year, time.Now())
		byFirst, bySecond := connectionOf(clientCert(first, "any")), connectionOf(clientCert(second, "any"))
		path, clients := filepath.Join(t.TempDir(), "ca.crt"), &serving.Clients{}
		follow(t, &serving.ClientCAs{Clients: clients, File: path, Log: logr.Discard()})
		Expect(clients.Check(byFirst)).NotTo(Succeed(), "there is no file yet")
		Expect(os.WriteFile(path, first.CertificatePEM, 0o600)).To(Succeed())
		passes(look)
		Expect(clients.Check(byFirst)).To(Succeed(), "appeared")
		Expect(clients.Check(bySecond)).NotTo(Succeed())

		info := Must(os.Stat(path))
		Expect(os.WriteFile(path, ca.Bundle(first.CertificatePEM, second.CertificatePEM), 0o600)).To(Succeed())
		Expect(os.Chtimes(path, info.ModTime(), info.ModTime())).To(Succeed())
		passes(look)
		Expect(clients.Check(bySecond)).To(Succeed(), "written over, within the same tick of the file's clock")

		// As the kubelet updates a mounted ConfigMap.
		Expect(os.WriteFile(path+".new", first.CertificatePEM, 0o600)).To(Succeed())
		Expect(os.Symlink(path+".new", path+".link")).To(Succeed())
		Expect(os.Rename(path+".link", path)).To(Succeed())
		passes(look)
		Expect(clients.Check(bySecond)).NotTo(Succeed(), "replaced by a link")

		Expect(os.Remove(path)).To(Succeed())
		passes(look)
		Expect(clients.Check(byFirst)).To(Succeed(), "removed: the last good ones stay")
	})
}

package serving_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

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
	code, text := http.StatusNotFound, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	if c.data != nil {
		data, err := json.Marshal(c.data)
		if err != nil {
			return nil, err
		}
		code = http.StatusOK
		text = []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"ca","namespace":"kube-system","uid":"u","resourceVersion":"` + strings.Repeat("1", c.n) + `"},"data":` + string(data) + `}`)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text)))}, nil
}

func TestClientCAsFollowAConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		first, second := leafCA(t, leafYear, time.Now()), leafCA(t, leafYear, time.Now())
		byFirst, bySecond := connectionOf(clientCert(t, first, "any")), connectionOf(clientCert(t, second, "any"))
		server := &configMap{}
		var logs logLines
		cas := &serving.ClientCAs{
			Clients: &serving.Clients{}, ConfigMap: types.NamespacedName{Namespace: "kube-system", Name: "ca"}, Key: "ca.crt",
			Log: logs.logger(),
		}
		g.Expect(cas.Empty()).To(BeAssignableToTypeOf(&corev1.ConfigMap{}))
		var err error
		cas.Objects, err = cluster.NewObjects(&rest.Config{Host: "https://api.example.org", Transport: server}, cas.Log, cluster.Followed{
			Object: cas.Empty(), Access: func(context.Context) (cluster.Access, error) { return cluster.Access{Get: true}, nil },
		})
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { cas.Follow(ctx) })
		read := func() error {
			time.Sleep(40 * time.Second) // it is read again every half minute
			synctest.Wait()
			return cas.Read(ctx)
		}

		g.Expect(read()).To(MatchError(And(ContainSubstring("ManagerOptions.ClientCA.ConfigMap kube-system/ca"), ContainSubstring("needs get, list and watch"))))
		server.set(map[string]string{"other": ""})
		g.Expect(read()).To(MatchError(ContainSubstring(`it has no key "ca.crt"`)))
		server.set(map[string]string{"ca.crt": string(first.CertificatePEM)})
		g.Expect(read()).To(Succeed())
		g.Expect(cas.Clients.Check(byFirst)).To(Succeed())

		server.set(map[string]string{"ca.crt": string(second.CertificatePEM)})
		time.Sleep(40 * time.Second)
		synctest.Wait()
		g.Expect(cas.Clients.Check(bySecond)).To(Succeed(), "a change is taken over")
		g.Expect(cas.Clients.Check(byFirst)).NotTo(Succeed())

		for _, broken := range []map[string]string{{"ca.crt": "garbage"}, {}, nil} {
			before := len(logs.with("the last good ones stay"))
			server.set(broken)
			time.Sleep(40 * time.Second)
			synctest.Wait()
			g.Expect(cas.Clients.Check(bySecond)).To(Succeed(), "the last good ones stay in force")
			g.Expect(len(logs.with("the last good ones stay"))).To(BeNumerically(">", before), logs.String)
		}
	})
}

var _ = Describe("Who may call", func() {
	It("is read from text or from a file, and errors name the option", func(ctx SpecContext) {
		authority := leafCA(GinkgoTB(), leafYear, time.Now())
		accepted := connectionOf(clientCert(GinkgoTB(), authority, "any"))

		text := &serving.ClientCAs{Clients: &serving.Clients{}, PEM: authority.CertificatePEM}
		Expect(text.Read(ctx)).To(Succeed())
		Expect(text.Clients.Check(accepted)).To(Succeed())
		text.PEM = []byte("garbage")
		Expect(text.Read(ctx)).To(MatchError(ContainSubstring("ManagerOptions.ClientCA.PEM")))
		text.Follow(ctx) // has nothing to follow

		path := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		file := &serving.ClientCAs{Clients: &serving.Clients{}, File: path, Log: GinkgoLogr}
		Expect(file.Read(ctx)).To(MatchError(And(ContainSubstring("ManagerOptions.ClientCA.File"), ContainSubstring(path))))
		Expect(os.WriteFile(path, authority.CertificatePEM, 0o600)).To(Succeed())
		Expect(file.Read(ctx)).To(Succeed())
		Expect(file.Clients.Check(accepted)).To(Succeed())
	})

	It("is not known when the ConfigMap cannot be read in time", func(ctx SpecContext) {
		cas := &serving.ClientCAs{Clients: &serving.Clients{}, ConfigMap: types.NamespacedName{Namespace: "kube-system", Name: "ca"}, Key: "ca.crt"}
		objects, err := cluster.NewObjects(&rest.Config{Host: "https://api.example.org", Transport: &configMap{}}, GinkgoLogr,
			cluster.Followed{Object: cas.Empty()})
		Expect(err).NotTo(HaveOccurred())
		cas.Objects = objects
		over, cancel := context.WithCancel(ctx)
		cancel()
		Expect(cas.Read(over)).To(And(MatchError(ContainSubstring("ConfigMap ca could not be read")), MatchError(context.Canceled)))
	})
})

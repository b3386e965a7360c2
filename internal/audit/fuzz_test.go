package audit

// Fuzz targets of the texts that an audit reads.

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"
)

// FuzzStored changes any object as for a request. The result is the same tree, with a type, and without the members
// that a cluster adds.
func FuzzStored(f *testing.F) {
	for _, seed := range []string{
		one("a/x"), `{}`, `{ }`, `{"status":{}}`, `{"metadata":null}`, `{"metadata":{"uid":"x","uid":"y"}}`, `{"kind":"A"}`, `{"apiVersion":""}`,
		`{"metadata":{"uid":1,"labels":{"\u00e9":"<"}},"n":1e400}`, `{"a":12345678901234567890,"\ud800":1}`,
	} {
		f.Add([]byte(seed))
	}
	kind := schema.GroupVersionKind{Group: "shop.example.org", Version: "v1", Kind: "Shop"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var tree map[string]any
		raw = []byte(strings.TrimSpace(string(raw))) // as a decoder passes it
		if !json.Valid(raw) || kjson.UnmarshalCaseSensitivePreserveInts(raw, &tree) != nil || tree == nil {
			return
		}
		g := gomega.NewWithT(t)
		i := &item{raw: raw}
		if json.Unmarshal(raw, &i.head) != nil {
			return
		}
		var was head
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &was); err != nil {
			return
		}
		i.head = was
		text, created := resource{kind: kind}.texts(i.raw)
		var now map[string]any
		g.Expect(kjson.UnmarshalCaseSensitivePreserveInts(text, &now)).To(gomega.Succeed())
		for name := range tree {
			if name != "apiVersion" && name != "kind" {
				g.Expect(reflect.DeepEqual(now[name], tree[name])).To(gomega.BeTrue(), "%s", name)
			}
		}
		var fresh map[string]any
		g.Expect(kjson.UnmarshalCaseSensitivePreserveInts(created, &fresh)).To(gomega.Succeed())
		delete(now, "status")
		if metadata, ok := now["metadata"].(map[string]any); ok {
			for _, name := range notCreated {
				delete(metadata, name)
			}
		}
		g.Expect(fresh).To(gomega.Equal(now))
	})
}

// FuzzPage reads any text as a list. Nothing panics, and each object is received once.
func FuzzPage(f *testing.F) {
	for _, seed := range []string{
		list("", "a/x", "a/y"), list("2", "a"), `{}`, `{"items":null}`, `{"items":[1,null,{}]}`, `[]`, `{"metadata":{"continue":1}}`, `{"items":[{}`, `x`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		g := gomega.NewWithT(t)
		calls := 0
		client, err := rest.UnversionedRESTClientForConfigAndClient(
			&rest.Config{Host: "http://127.0.0.1", QPS: -1, ContentConfig: rest.ContentConfig{NegotiatedSerializer: clientgoscheme.Codecs.WithoutConversion()}},
			&http.Client{Transport: roundTrips(func(r *http.Request) *http.Response {
				calls++
				body := io.NopCloser(strings.NewReader(string(page)))
				if r.URL.Query().Get("continue") != "" {
					body = io.NopCloser(strings.NewReader(`{}`))
				}
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}
			})})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		l := &lister{client: client, rate: &turns{}, pageSize: 1, log: logr.Discard(), patience: time.Nanosecond, pageTime: time.Minute}
		seen := map[string]bool{}
		_ = l.list(context.Background(), listPath, acceptObjects, func(_ context.Context, i *item) error {
			key := i.head.key()
			g.Expect(key != "" && seen[key]).To(gomega.BeFalse())
			g.Expect(json.Valid(i.raw)).To(gomega.BeTrue())
			seen[key] = true
			return nil
		}, nil)
		g.Expect(calls).To(gomega.BeNumerically("<=", 3))
	})
}

type roundTrips func(*http.Request) *http.Response

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

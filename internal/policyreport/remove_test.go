package policyreport_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/policyreport"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestPolicyreport(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/policyreport")
}

// asked is a transport.
type asked func(*http.Request) (*http.Response, error)

func (f asked) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var _ = Describe("Remove", func() {
	It("lists the reports in pages, and deletes those of each page", func(SpecContext) {
		var deleted []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer GinkgoRecover()
			w.Header().Set("Content-Type", "application/json")
			query := r.URL.Query()
			switch {
			case r.Method == http.MethodDelete:
				deleted = append(deleted, path.Base(r.URL.Path))
				_, _ = fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Success"}`)
			case !strings.HasSuffix(r.URL.Path, "/reports"):
				w.WriteHeader(http.StatusNotFound)
			default:
				Expect(query.Get("limit")).To(Equal("500"))
				Expect(query.Get("labelSelector")).To(Equal(policyreport.Label + "=eirini-x"))
				page := cmp.Or(query.Get("continue"), "first")
				next := map[string]string{"first": "second", "second": "third"}[page]
				_, _ = fmt.Fprintf(w, `{"apiVersion":"openreports.io/v1alpha1","kind":"ReportList","metadata":{"continue":%q},
					"items":[{"apiVersion":"openreports.io/v1alpha1","kind":"Report","metadata":{"namespace":"cf","name":%q}}]}`, next, page)
			}
		}))
		DeferCleanup(server.Close)
		client := Must(dynamic.NewForConfig(&rest.Config{Host: server.URL, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
			return asked(func(r *http.Request) (*http.Response, error) {
				_, ends := r.Context().Deadline()
				Expect(ends).To(BeFalse(), "the number of reports has no bound, so the sum of the requests has none")
				return next.RoundTrip(r)
			})
		}}))
		policyreport.Remove(context.Background(), client, "eirini-x", logr.Discard())
		Expect(deleted).To(Equal([]string{"first", "second", "third"}))
	}, SpecTimeout(2*time.Minute))
})

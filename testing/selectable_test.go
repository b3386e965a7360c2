package eirinixtest

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/offline"
)

func TestFieldsThatAReadCanSelectByAreThoseOfAnAPIServer(t *testing.T) {
	g := NewWithT(t)
	config := StartControlPlane(t, Shared).Config()
	config.QPS = -1
	asks := discovery.NewDiscoveryClientForConfigOrDie(config)
	groups, err := restmapper.GetAPIGroupResources(asks)
	g.Expect(err).NotTo(HaveOccurred())
	release, err := asks.ServerVersion()
	g.Expect(err).NotTo(HaveOccurred())
	mapper, client := restmapper.NewDiscoveryRESTMapper(groups), dynamic.NewForConfigOrDie(config)
	for kind, known := range selectable {
		mapping, err := mapper.RESTMapping(kind)
		if meta.IsNoMatchError(err) {
			t.Logf("this API server does not serve %s", kind)
			continue
		}
		g.Expect(err).NotTo(HaveOccurred())
		list := func(field string) error {
			_, err := client.Resource(mapping.Resource).List(t.Context(), metav1.ListOptions{FieldSelector: field + "=x"})
			return err
		}
		for _, field := range append(known, metav1.ObjectNameField) {
			if field == "spec.pool.name" && release.Minor < "37" {
				continue // the API server of 1.36 does not know it
			}
			g.Expect(list(field)).To(Succeed(), "%s by %s", kind, field)
		}
		g.Expect(list("spec.nothing")).To(MatchError(ContainSubstring("not supported")), "%s", kind)
	}
}

func TestAHarnessRefusesAReadThatNoAPIServerWouldAnswer(t *testing.T) {
	for field, refused := range map[string]bool{"spec.nodeName": false, "metadata.name": false, "spec.priorityClassName": true, "status.hostIP": true} {
		g := NewWithT(t)
		m := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
		g.Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{
			ID: "looks", Settings: eirinix.Settings{Reads: []eirinix.Read{{Object: &corev1.Pod{}, Fields: fields.OneTermEqualSelector(field, "x")}}},
			Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil },
		})).To(Succeed())
		played, err := offline.Of(m, offline.Options{})
		g.Expect(err).NotTo(HaveOccurred())
		err = (&program{scheme: played.Scheme, reads: played.Reads}).checkFields()
		if !refused {
			g.Expect(err).NotTo(HaveOccurred(), field)
			continue
		}
		g.Expect(err).To(MatchError(And(ContainSubstring(`"looks": Settings.Reads[0].Fields selects by `+field), ContainSubstring("spec.nodeName"), ContainSubstring("Read.Index"))))
		g.Expect(strings.Count(err.Error(), field)).To(Equal(1))
	}
}

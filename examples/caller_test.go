package examples_test

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// apiServer starts an API server that shows a client certificate for that name to the webhook at an address.
func (a authority) apiServer(ctx context.Context, name, address string) kubernetes.Interface {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	write := func(file string, content any) string {
		text, err := json.Marshal(content)
		Expect(err).NotTo(HaveOccurred())
		return writeFile(dir, file, text)
	}
	certificate, key := Issue(a.Authority, ForClient(name))
	credentials := write("kubeconfig", map[string]any{"apiVersion": "v1", "kind": "Config", "users": []any{
		map[string]any{"name": address, "user": map[string]any{"client-certificate-data": certificate, "client-key-data": key}},
	}})
	webhooks := map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": credentials}
	config := write("admission.json", map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": []any{
			map[string]any{"name": "MutatingAdmissionWebhook", "configuration": webhooks},
			map[string]any{"name": "ValidatingAdmissionWebhook", "configuration": webhooks},
		},
	})
	server, err := plane.AddAPIServer(ctx, "--admission-control-config-file="+config)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Stop)
	return kubernetes.NewForConfigOrDie(server.Config())
}

package drills_test

// This file reads the audit log of the API server, which names the webhooks that changed an object.

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// mutationAnnotation begins the keys under which the API server records the mutating webhooks of a request.
const mutationAnnotation = "mutation.webhook.admission.k8s.io/"

// auditPolicy records who asked for pods, and the annotations.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
	{"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
	{"level": "None"}
]}`

// auditLog is the path of the audit log.
var auditLog string

// auditArgs returns the flags for a log of the requests that create pods.
func auditArgs() []string {
	GinkgoHelper()
	folder := Must(os.MkdirTemp("", "drills-"))
	DeferCleanup(os.RemoveAll, folder)
	auditLog = filepath.Join(folder, "audit.log")
	policy := filepath.Join(folder, "policy.yaml")
	Expect(os.WriteFile(policy, []byte(auditPolicy), 0o600)).To(Succeed())
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog}
}

// changedBy returns the webhook configurations that changed pods of the namespace.
func changedBy(namespace string) (configurations []string) {
	GinkgoHelper()
	for line := range bytes.Lines(Must(os.ReadFile(auditLog))) {
		var event struct {
			ObjectRef   struct{ Namespace string }
			Annotations map[string]string
		}
		if json.Unmarshal(line, &event) != nil || event.ObjectRef.Namespace != namespace {
			continue // the last line may not be complete
		}
		for key, value := range event.Annotations {
			var m struct {
				Configuration string
				Mutated       bool
			}
			if strings.HasPrefix(key, mutationAnnotation) && json.Unmarshal([]byte(value), &m) == nil && m.Mutated {
				configurations = append(configurations, m.Configuration)
			}
		}
	}
	return configurations
}

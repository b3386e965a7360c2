package audit_test

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
)

// A program offers its audit with one line, here as the command "audit".
func ExampleCommand() {
	run := func(ctx context.Context, args []string, configure ...func(*audit.Options)) error {
		x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
		if err := x.AddExtension(noRoot); err != nil {
			return err
		}
		if len(args) > 0 && args[0] == "audit" {
			return audit.Command(ctx, x, args[1:], configure...)
		}
		return x.Run(ctx)
	}
	// Only this example has no cluster, so it plays the audit of one.
	played := func(o *audit.Options) {
		o.Stdout = os.Stdout
		o.Run = func(_ context.Context, o eirinix.AuditOptions) (eirinix.AuditSummary, error) {
			err := o.Finding(eirinix.AuditFinding{
				Step: "no-root", Result: eirinix.AuditDenied, Message: "web would run as root",
				Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "default", Name: "web",
			})
			return eirinix.AuditSummary{
				Objects: 2, Asked: map[string]int{"no-root": 2},
				Findings: map[string]map[eirinix.AuditResult]int{"no-root": {eirinix.AuditDenied: 1}},
			}, err
		}
	}
	err := run(context.Background(), []string{"audit"}, played)
	fmt.Println(err) // log.Fatal would end with code 1
	// Output:
	// denied  default/web (Pod)  no-root: web would run as root
	//
	//   asked  denied  failed  drift  untold  extension
	//       2       1       0      0       0  no-root
	// 2 objects were audited
	// 2 objects: 1 denied
}

var noRoot = eirinix.Validation[*corev1.Pod]{
	ID: "no-root",
	Create: func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
		if s := p.Spec.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot {
			return eirinix.Deny("%s would run as root", p.Name)
		}
		return nil
	},
}

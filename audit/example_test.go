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
	run := func(ctx context.Context, args []string, configure ...func(*audit.CommandOptions)) error {
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
	played := func(o *audit.CommandOptions) {
		o.Stdout = os.Stdout
		o.Run = func(_ context.Context, o audit.Options) (audit.Summary, error) {
			err := o.Finding(audit.Finding{
				Step: "no-root", Result: audit.Denied, Message: "web would run as root",
				Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "default", Name: "web",
			})
			return audit.Summary{
				Objects: 2, Asked: map[string]int{"no-root": 2},
				Findings: map[string]map[audit.Result]int{"no-root": {audit.Denied: 1}},
			}, err
		}
	}
	err := run(context.Background(), []string{"audit"}, played)
	fmt.Println(err) // log.Fatal would end with code 1
	// Output:
	// denied   default/web (Pod)  no-root: web would run as root
	//
	//   asked  denied  failed  drift  unknown  extension
	//       2       1       0      0        0  no-root
	// 2 objects were audited
	// 2 objects: 1 denied
}

// Run reports what a new rule would say of the objects that exist, before the rule is in force.
func ExampleRun() {
	x := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "extensions", WebhookNamespace: "cf-system", KubeConfig: "nowhere"})
	_, err := audit.Run(context.Background(), x, audit.Options{
		Finding: func(f audit.Finding) error {
			fmt.Println(f.Result, f.Namespace, f.Name, f.Step, f.Message)
			return nil
		},
	})
	fmt.Println(err)
	// Output: eirinix: ManagerOptions.KubeConfig "nowhere" cannot be used; give the path of a kubeconfig file: stat nowhere: no such file or directory
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

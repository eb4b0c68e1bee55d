//go:build ignore

// Command proto writes the table beside it (proto.txt): the protobuf fields of the built-in kinds, from the tags of Go's types
// of a Kubernetes release. Run it in a module that requires that release:
//
//	go run proto.go > proto.txt
package main

import (
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var special = map[string]string{
	"resource.Quantity": "Q", "intstr.IntOrString": "I", "v1.Time": "T", "v1.MicroTime": "U", "v1.Duration": "D",
	"runtime.RawExtension": "R", "v1.FieldsV1": "F", "v1.JSON": "J",
	"v1.JSONSchemaPropsOrArray": "A", "v1.JSONSchemaPropsOrBool": "B", "v1.JSONSchemaPropsOrStringArray": "S",
}

var index = map[reflect.Type]int{}
var order []reflect.Type

func id(t reflect.Type) int {
	if i, ok := index[t]; ok {
		return i
	}
	i := len(order)
	index[t] = i
	order = append(order, t)
	return i
}

func code(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return code(t.Elem())
	}
	if s, ok := special[t.String()]; ok {
		if s == "A" || s == "B" || s == "S" {
			return fmt.Sprintf("%s%d", s, id(reflect.TypeOf(apiext.JSONSchemaProps{})))
		}
		return s
	}
	switch t.Kind() {
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64, reflect.Uint8:
		return "v"
	case reflect.Float64:
		return "d"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "y"
		}
		// A named list of strings within a map is a message with `items`.
		return "*" + code(t.Elem())
	case reflect.Map:
		e := t.Elem()
		if e.Kind() == reflect.Slice && e.Elem().Kind() == reflect.String {
			return "<L"
		}
		return "<" + code(e)
	case reflect.Struct:
		return fmt.Sprintf("m%d", id(t))
	}
	fmt.Fprintln(os.Stderr, "unknown", t)
	return "?"
}

func main() {
	_ = apiext.AddToScheme(scheme.Scheme)
	_ = apireg.AddToScheme(scheme.Scheme)
	metav1.AddMetaToScheme(scheme.Scheme)
	type root struct {
		gvk schema.GroupVersionKind
		id  int
	}
	var roots []root
	var gvks []schema.GroupVersionKind
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version == "v1" || (gvk.Group == "autoscaling" && gvk.Version == "v2") {
			gvks = append(gvks, gvk)
		}
	}
	sort.Slice(gvks, func(i, j int) bool { return gvks[i].String() < gvks[j].String() })
	proto := reflect.TypeOf((*interface{ Marshal() ([]byte, error) })(nil)).Elem()
	for _, gvk := range gvks {
		t := scheme.Scheme.AllKnownTypes()[gvk]
		if gvk.Kind == "WatchEvent" || (gvk.Group != "" && gvk.Group != "meta.k8s.io" && t.PkgPath() == "k8s.io/apimachinery/pkg/apis/meta/v1") {
			continue
		}
		if !reflect.PointerTo(t).Implements(proto) {
			continue
		}
		roots = append(roots, root{gvk, id(t)})
	}
	var lines [][]string
	for i := 0; i < len(order); i++ {
		t := order[i]
		var out []string
		for f := 0; f < t.NumField(); f++ {
			field := t.Field(f)
			tag := field.Tag.Get("protobuf")
			if tag == "" || tag == "-" {
				continue
			}
			parts := strings.Split(tag, ",")
			name := strings.Split(field.Tag.Get("json"), ",")
			kind := code(field.Type)
			packed := ""
			if name[0] == "" {
				// Inlined: its own message on the wire, no level in JSON.
				name[0] = "="
			}
			out = append(out, fmt.Sprintf(" %s %s %s%s", name[0], parts[1], kind, packed))
		}
		lines = append(lines, out)
	}
	fmt.Println("# Written by proto.go. `group/version kind type` (group - for core), then types by number: ` field number code`.")
	for _, r := range roots {
		g := r.gvk.Group
		if g == "" {
			g = "-"
		}
		fmt.Printf("%s/%s %s %d\n", g, r.gvk.Version, r.gvk.Kind, r.id)
	}
	for i, out := range lines {
		fmt.Printf("T%d\n", i)
		for _, l := range out {
			fmt.Println(l)
		}
	}
}

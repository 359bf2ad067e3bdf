// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package configschema derives schemas from the configuration structs of components:
// config.schema.yaml of each component, in the form of opentelemetry-collector-contrib, and one
// JSON schema for whole configurations. Tests and generators use it; no component does.
package configschema

//go:generate sh -c "cd ../../cmd/otelcol-gpu && OTELGPU_UPDATE_SCHEMA=1 go test -count=1 -run SchemaIsCurrent ."

import (
	"encoding"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Kind is the JSON type of a value.
type Kind string

// Kinds.
const (
	Any     Kind = ""
	Object  Kind = "object"
	Array   Kind = "array"
	Map     Kind = "map" // an object with any keys
	String  Kind = "string"
	Integer Kind = "integer"
	Number  Kind = "number"
	Boolean Kind = "boolean"
)

const (
	module   = "github.com/otelgpu/otelgpu"
	optional = "go.opentelemetry.io/collector/config/configoptional"
)

// Node describes one value of a configuration.
type Node struct {
	Kind        Kind
	Type        reflect.Type
	Description string
	Duration    bool // a string such as 10s
	Optional    bool // has the key `enabled` and is enabled by its key alone
	Pointer     bool
	Enum        []string
	Default     any // nil if there is none, or if it is empty
	Fields      []Field
	Open        bool // an object that takes further keys
	Recursive   bool // an object of a type that contains it
	Elem        *Node
}

// Field is a key of an object. The squashed structs of other modules have an empty Name.
type Field struct {
	Name  string
	Value *Node
}

// Keys returns the fields of an object by their keys, with the keys of squashed structs.
func (n *Node) Keys() map[string]*Node {
	out := map[string]*Node{}
	for _, f := range n.Fields {
		if f.Name == "" {
			maps.Copy(out, f.Value.Keys())
		} else {
			out[f.Name] = f.Value
		}
	}
	return out
}

// External reports whether the value is a struct of another module.
func (n *Node) External() bool {
	return n.Kind == Object && n.Type.PkgPath() != module && !strings.HasPrefix(n.Type.PkgPath(), module+"/")
}

// Of describes a configuration by its type, its default values, and the comments on its fields. cfg
// is a pointer to a struct.
func Of(cfg any) (*Node, error) {
	w := walker{comments: map[string]map[string]string{}}
	n, err := w.walk(reflect.ValueOf(cfg).Elem().Type(), reflect.ValueOf(cfg).Elem())
	if err != nil {
		return nil, fmt.Errorf("cannot describe %T: %w", cfg, err)
	}
	return n, nil
}

type walker struct {
	comments map[string]map[string]string // by package, then by Type.Field
	inside   []reflect.Type
}

// walk describes a type. value holds its default; it is invalid if missing, as for the items of a
// list.
func (w *walker) walk(t reflect.Type, value reflect.Value) (*Node, error) {
	n := &Node{Type: t}
	switch {
	case t.Kind() == reflect.Pointer:
		if value.IsValid() {
			value = value.Elem()
		}
		n, err := w.walk(t.Elem(), value)
		if err == nil {
			n.Pointer = true
		}
		return n, err
	case t.PkgPath() == optional:
		return w.optional(t, value)
	case t == reflect.TypeFor[time.Duration]():
		n.Kind, n.Duration = String, true
		if value.IsValid() {
			n.Default = duration(time.Duration(value.Int()))
		}
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		n.Kind = String
		if value.IsValid() {
			n.Default = text(value)
		}
	case t.Kind() == reflect.Struct:
		n.Kind = Object
		return n, w.fields(n, value)
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map:
		n.Kind = Array
		if t.Kind() == reflect.Map {
			n.Kind = Map
		}
		elem, err := w.walk(t.Elem(), reflect.Value{})
		n.Elem = elem
		if err == nil && n.Kind == Array && value.IsValid() && value.Len() > 0 && elem.Kind != Object {
			n.Default = list(value)
		}
		return n, err
	default:
		n.Kind = scalar(t.Kind())
		if value.IsValid() && n.Kind != Any && (n.Kind != String || !value.IsZero()) {
			n.Default = value.Interface()
		}
	}
	return n, nil
}

func scalar(k reflect.Kind) Kind {
	switch {
	case k == reflect.Bool:
		return Boolean
	case k == reflect.String:
		return String
	case k >= reflect.Int && k <= reflect.Uintptr:
		return Integer
	case k == reflect.Float32 || k == reflect.Float64:
		return Number
	}
	return Any
}

// optional describes the struct inside a configoptional.Optional, with the values that the empty
// key gives it.
func (w *walker) optional(t reflect.Type, value reflect.Value) (*Node, error) {
	instance := reflect.New(t)
	enabled := false
	if value.IsValid() {
		instance.Elem().Set(value)
		enabled = instance.MethodByName("HasValue").Call(nil)[0].Bool()
	}
	inner := instance.MethodByName("GetOrInsertDefault").Call(nil)[0].Elem()
	n, err := w.walk(inner.Type(), inner)
	if err != nil {
		return nil, err
	}
	n.Optional = true
	if n.Kind == Object {
		key := &Node{Kind: Boolean, Type: reflect.TypeFor[bool](), Default: enabled}
		key.Description = "Enables the section. A section that is present is enabled unless this is false."
		n.Fields = slices.Insert(n.Fields, 0, Field{"enabled", key})
	}
	return n, nil
}

func (w *walker) fields(n *Node, value reflect.Value) error {
	if slices.Contains(w.inside, n.Type) {
		n.Recursive = true
		return nil
	}
	w.inside = append(w.inside, n.Type)
	defer func() { w.inside = w.inside[:len(w.inside)-1] }()
	comments, err := w.ofPackage(n.Type.PkgPath())
	if err != nil {
		return err
	}
	for f := range n.Type.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		var v reflect.Value
		if value.IsValid() {
			v = value.FieldByIndex(f.Index)
		}
		switch {
		case strings.Contains(options, "remain"):
			// The Collector panics on further keys of structs of the SDK's configuration, in which
			// the field is an any.
			n.Open = f.Type.Kind() == reflect.Map
			continue
		case name == "" && !strings.Contains(options, "squash"):
			name = f.Name // the Collector reads keys case-sensitively
		}
		inner, err := w.walk(f.Type, v)
		if err != nil {
			return err
		}
		if name == "" && !inner.External() {
			n.Fields = append(n.Fields, inner.Fields...)
			n.Open = n.Open || inner.Open
			continue
		}
		inner.Description = comments[n.Type.Name()+"."+f.Name]
		if enum := f.Tag.Get("enum"); enum != "" {
			inner.Enum = strings.Split(enum, ",")
		}
		n.Fields = append(n.Fields, Field{name, inner})
	}
	return nil
}

// ofPackage returns the comments on the fields of this repository's structs. There are none for
// other modules.
func (w *walker) ofPackage(path string) (map[string]string, error) {
	inner, ok := strings.CutPrefix(path+"/", module+"/")
	if !ok {
		return nil, nil
	}
	if found, ok := w.comments[path]; ok {
		return found, nil
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, inner, "*.go"))
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						found[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
					}
				}
			}
			return true
		})
	}
	w.comments[path] = found
	return found, nil
}

// Root returns the root of the repository that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		b, readErr := os.ReadFile(filepath.Join(dir, "go.mod"))
		if readErr == nil && strings.HasPrefix(string(b), "module "+module+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of %s above the working directory", module)
		}
	}
	return "", err
}

var zeroParts = regexp.MustCompile(`([hm])(?:0m)?0s$`)

func duration(d time.Duration) string { return zeroParts.ReplaceAllString(d.String(), "$1") }

// text returns a value as UnmarshalText reads it, nil if that is empty.
func text(v reflect.Value) any {
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	m, ok := reflect.TypeAssert[encoding.TextMarshaler](p)
	var out string
	if ok {
		b, err := m.MarshalText()
		if err != nil {
			return nil
		}
		out = string(b)
	} else if v.Kind() == reflect.String {
		out = v.String()
	}
	if out == "" {
		return nil
	}
	return out
}

func list(v reflect.Value) []any {
	var out []any
	for i := range v.Len() {
		if d, ok := reflect.TypeAssert[time.Duration](v.Index(i)); ok {
			out = append(out, duration(d))
		} else {
			out = append(out, v.Index(i).Interface())
		}
	}
	return out
}

package cluster

import (
	"bytes"
	"context"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// protobufPrefix begins every object that the API server writes as protobuf.
var protobufPrefix = []byte("k8s\x00")

// listNodes lists Nodes without most of their status and without managed fields, which are nine tenths of them and take most of the time to decode.
func (r *Reader) listNodes(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	client, ok := r.Kube.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || client == nil { // not a real one
		return r.Kube.CoreV1().Nodes().List(ctx, opts)
	}
	result := client.Get().Resource("nodes").VersionedParams(&opts, scheme.ParameterCodec).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(body, protobufPrefix) { // something in between answers in JSON only
		return result.Get()
	}
	return decodeNodes(body)
}

// Numbers of fields in Kubernetes' protobuf definitions.
const (
	envelopeRaw         = 2 // runtime.Unknown
	listMeta, listItems = 1, 2
	nodeMeta            = 1
	nodeStatus          = 3
	managedFields       = 17 // of metadata
	statusAddresses     = 5
)

var errProtobuf = errors.New("the API server's answer is no list of Nodes in protobuf")

// decodeNodes decodes a NodeList, without the fields that are passed over.
func decodeNodes(body []byte) (list *corev1.NodeList, err error) {
	list = &corev1.NodeList{}
	var small []byte // used for one Node after the other
	decode := func(number protowire.Number, _, value []byte) error {
		switch number {
		case listMeta:
			return list.ListMeta.Unmarshal(value)
		case listItems:
			var node corev1.Node
			if small, err = withoutRest(small[:0], value); err != nil {
				return err
			}
			if err := node.Unmarshal(small); err != nil {
				return err
			}
			list.Items = append(list.Items, node)
		}
		return nil
	}
	list.Items = make([]corev1.Node, 0, pageSize)
	return list, eachField(body[len(protobufPrefix):], func(number protowire.Number, _, value []byte) error {
		if number != envelopeRaw {
			return nil
		}
		return eachField(value, decode)
	})
}

// withoutRest appends an encoded Node without what is passed over.
func withoutRest(small, node []byte) ([]byte, error) {
	err := eachField(node, func(number protowire.Number, whole, value []byte) error {
		var keep func(protowire.Number) bool
		switch number {
		case nodeMeta:
			keep = func(n protowire.Number) bool { return n != managedFields }
		case nodeStatus:
			keep = func(n protowire.Number) bool { return n == statusAddresses }
		default:
			small = append(small, whole...)
			return nil
		}
		var kept []byte
		err := eachField(value, func(number protowire.Number, whole, _ []byte) error {
			if keep(number) {
				kept = append(kept, whole...)
			}
			return nil
		})
		small = protowire.AppendBytes(protowire.AppendTag(small, number, protowire.BytesType), kept)
		return err
	})
	return small, err
}

// eachField calls f for each field of a message: with all of it, and with its value if that has a length.
func eachField(message []byte, f func(number protowire.Number, whole, value []byte) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return errProtobuf
		}
		n := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if n < 0 {
			return errProtobuf
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[tag:])
		}
		if err := f(number, message[:tag+n], value); err != nil {
			return err
		}
		message = message[tag+n:]
	}
	return nil
}

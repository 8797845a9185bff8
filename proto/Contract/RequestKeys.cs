using Google.Protobuf;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster;

/// <summary>
/// The keys that an encoded request names, and the one by whose shard it is routed, without decoding or copying anything else. For client libraries, routers
/// and nodes alike: where two of them took another key, the node of one shard was asked for another one's until the call's time was over.
/// </summary>
/// <remarks>
/// A Write or Transact is routed by its first operation, without one by the first of the list for failed conditions, without any by its first condition. What
/// names no key is passed over: a condition on a range that begins with the shard, and what a node refuses. Fields may come in any order. Of a field that is
/// repeated against the contract the last value counts.
/// </remarks>
internal static class RequestKeys
{
    /// <summary>The key by whose shard a request is routed; empty if it names none, or is for the first shard.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static ReadOnlySpan<byte> First(Method method, ReadOnlySpan<byte> request) => TryFirst(method, request, out var key) ? key : default;

    /// <summary>The same within the request's own memory, if it is there.</summary>
    /// <inheritdoc cref="First(Method, ReadOnlySpan{byte})" path="/exception"/>
    public static ReadOnlyMemory<byte> First(Method method, ByteString request)
    {
        var key = First(method, request.Span);
        return request.Span.Overlaps(key, out var offset) ? request.Memory.Slice(offset, key.Length) : key.ToArray();
    }

    /// <summary>The key by whose shard a request is routed; false if it names none.</summary>
    /// <inheritdoc cref="First(Method, ReadOnlySpan{byte})" path="/exception"/>
    public static bool TryFirst(Method method, ReadOnlySpan<byte> request, out ReadOnlySpan<byte> key)
    {
        if (method.IsOfRange())
        {
            key = FirstOfRange(method, request);
            return true;
        }
        var keys = new Walk(method, request);
        var isNamed = keys.MoveNext();
        key = keys.Current;
        return isNamed;
    }

    // DeleteRange, Count and List have start, end and prefix in the same fields.
    private static ReadOnlySpan<byte> FirstOfRange(Method method, ReadOnlySpan<byte> request)
    {
        ReadOnlySpan<byte> start = default, end = default, prefix = default, token = default;
        var isReverse = false;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case ListRequest.StartFieldNumber: start = reader.ReadBytes(); break;
                case ListRequest.EndFieldNumber: end = reader.ReadBytes(); break;
                case ListRequest.PrefixFieldNumber: prefix = reader.ReadBytes(); break;
                case ListRequest.ReverseFieldNumber when method == Method.List: isReverse = reader.ReadBool(); break;
                case ListRequest.PageTokenFieldNumber when method == Method.List: token = reader.ReadBytes(); break;
                default: reader.Skip(); break;
            }
        }
        if (!isReverse && token.IsEmpty)
            return start.SequenceCompareTo(prefix) >= 0 ? start : prefix;
        return RouteKeys.Of(start.ToArray(), end.ToArray(), prefix.ToArray(), isReverse, token.ToArray()).Span;
    }

    /// <summary>
    /// The keys of a request, the one by which it is routed first: of a Write or Transact those of its operations and conditions, of a SetIntersect those of
    /// its sets and its facet prefixes, of any other the key, or the keys. Only of methods that are not of a range.
    /// </summary>
    internal ref struct Walk(Method method, ReadOnlySpan<byte> request)
    {
        /// <summary>Lists of keys in a request, at most.</summary>
        private const int PassesMax = 3;

        private readonly Method _method = method;
        private readonly ReadOnlySpan<byte> _request = request;
        private WireReader _reader = new(request);
        private int _pass;

        public ReadOnlySpan<byte> Current { get; private set; }

        /// <summary>Advances to the next key.</summary>
        public bool MoveNext()
        {
            for (; _pass < PassesMax; _pass++, _reader = new WireReader(_request))
            {
                var (list, kind) = ListOf(_method, _pass);
                for (int field; list != 0 && (field = _reader.ReadField()) != 0;)
                {
                    if (field != list)
                    {
                        _reader.Skip();
                        continue;
                    }
                    Current = _reader.ReadBytes();
                    if (kind == ListKind.Key)
                        return TakeLast();
                    if (TryKeyIn(kind, out var key))
                    {
                        Current = key;
                        return true;
                    }
                }
            }
            Current = default;
            return false;
        }

        private readonly bool TryKeyIn(ListKind kind, out ReadOnlySpan<byte> key)
        {
            if (kind == ListKind.Operations)
                return TryKeyOfOperation(Current, out key);
            if (kind == ListKind.Conditions)
                return TryKeyOfCondition(Current, out key);
            key = Current;
            return true;
        }

        // The only key of a request.
        private bool TakeLast()
        {
            for (int field; (field = _reader.ReadField()) != 0;)
            {
                if (field == GetRequest.KeyFieldNumber)
                    Current = _reader.ReadBytes();
                else
                    _reader.Skip();
            }
            _pass = PassesMax;
            return true;
        }

        private static (int Field, ListKind Kind) ListOf(Method method, int pass) => (method, pass) switch
        {
            (Method.Write, 0) => (WriteRequest.OperationsFieldNumber, ListKind.Operations),
            (Method.Write, 1) => (WriteRequest.ConditionsFieldNumber, ListKind.Conditions),
            (Method.Transact, 0) => (TransactRequest.SuccessFieldNumber, ListKind.Operations),
            (Method.Transact, 1) => (TransactRequest.FailureFieldNumber, ListKind.Operations),
            (Method.Transact, 2) => (TransactRequest.ConditionsFieldNumber, ListKind.Conditions),
            (Method.SetIntersect, 0) => (SetIntersectRequest.KeysFieldNumber, ListKind.Keys),
            (Method.SetIntersect, 1) => (SetIntersectRequest.FacetPrefixesFieldNumber, ListKind.Keys),
            (Method.GetMany, 0) => (GetManyRequest.KeysFieldNumber, ListKind.Keys),
            (Method.Write or Method.Transact or Method.SetIntersect or Method.GetMany, _) => default,
            // All other methods have their key in field 1.
            (_, 0) => (GetRequest.KeyFieldNumber, ListKind.Key),
            _ => default,
        };

        private static ReadOnlySpan<byte> KeyIn(ReadOnlySpan<byte> message)
        {
            ReadOnlySpan<byte> key = default;
            var reader = new WireReader(message);
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field == Condition.KeyFieldNumber)
                    key = reader.ReadBytes();
                else
                    reader.Skip();
            }
            return key;
        }

        private static bool TryKeyOfCondition(ReadOnlySpan<byte> condition, out ReadOnlySpan<byte> key) => !(key = KeyIn(condition)).IsEmpty;

        // Every kind of operation has its key, or the first one of its range, in field 1. A range may begin with the first of all keys.
        private static bool TryKeyOfOperation(ReadOnlySpan<byte> operation, out ReadOnlySpan<byte> key)
        {
            var kind = Operation.OperationOneofCase.None;
            ReadOnlySpan<byte> content = default;
            var reader = new WireReader(operation);
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field is < Operation.PutFieldNumber or > Operation.SetGetFieldNumber)
                {
                    reader.Skip();
                    continue;
                }
                kind = (Operation.OperationOneofCase)field;
                content = reader.ReadBytes();
            }
            key = KeyIn(content);
            return !key.IsEmpty || kind is Operation.OperationOneofCase.DeleteRange or Operation.OperationOneofCase.Scan;
        }

        /// <summary>What a field has.</summary>
        private enum ListKind
        {
            None,
            Key,
            Keys,
            Operations,
            Conditions,
        }
    }
}

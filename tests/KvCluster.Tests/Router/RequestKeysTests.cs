using Google.Protobuf;
using KvCluster.Node.Api.Changes;
using KvCluster.Router.Api;
using KvCluster.V1;
using KvCluster.Wire;
using Xunit.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Router;

/// <summary>Clients, routers and nodes find keys in encoded requests without decoding them. They must equal those of the decoded message.</summary>
public sealed class RequestKeysTests(ITestOutputHelper output)
{
    [Fact]
    public void Walk_OfRandomRequests_FindsTheKeysOfTheMessage()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < 500; round++)
        {
            var (key, value) = (RandomBytes(random, 1), RandomBytes(random, 0));
            Assert.Equal([key], KeysOf(Method.Get, new GetRequest { Key = key }));
            Assert.Equal([key], KeysOf(Method.Put, new PutRequest { Key = key, Value = value, Conditions = { new Condition { Exists = true } } }));
            Assert.Equal([key], KeysOf(Method.Delete, new DeleteRequest { Key = key, Conditions = { new Condition { ValueEquals = value } } }));
            Assert.Equal([key, value], KeysOf(Method.SetIntersect, new SetIntersectRequest { Keys = { key }, FacetPrefixes = { value }, Start = value }));
            Assert.Equal([key, value], KeysOf(Method.GetMany, new GetManyRequest { Keys = { key, value } }));
            var write = new WriteRequest { Operations = { RandomOperations(random) }, Conditions = { RandomConditions(random) } };
            Assert.Equal([.. write.Operations.SelectMany(KeysOf), .. write.Conditions.SelectMany(KeysOf)], KeysOf(Method.Write, write));
            var transact = new TransactRequest
            {
                Success = { RandomOperations(random) }, Failure = { RandomOperations(random) }, Conditions = { RandomConditions(random) }
            };
            Assert.Equal(
                [.. transact.Success.Concat(transact.Failure).SelectMany(KeysOf), .. transact.Conditions.SelectMany(KeysOf)],
                KeysOf(Method.Transact, transact));
        }
    }

    /// <summary>Nodes read operations and conditions by themselves, and must take the same keys.</summary>
    [Fact]
    public void Walk_OfOperationsAndConditions_FindsTheKeysThatNodesRead()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < 500; round++)
        {
            // A field twice, which no correct encoder makes.
            var operation = (ByteString[])[.. RandomOperations(random).Concat(RandomOperations(random)).Select(one => one.ToByteString())];
            var condition = (ByteString[])[.. RandomConditions(random).Concat(RandomConditions(random)).Select(one => one.ToByteString())];
            var (operationBytes, conditionBytes) =
                (operation.SelectMany(bytes => bytes.Span.ToArray()).ToArray(), condition.SelectMany(bytes => bytes.Span.ToArray()).ToArray());
            var fields = new OperationFields(operationBytes);
            var expected = fields.Key.Length > 0 || fields.Kind is Operation.OperationOneofCase.DeleteRange or Operation.OperationOneofCase.Scan
                ? [fields.Key.ToArray()]
                : Array.Empty<byte[]>();
            Assert.Equal(expected, KeysIn(Method.Write, Nested(WriteRequest.OperationsFieldNumber, operationBytes)));
            var test = new ConditionFields(conditionBytes);
            expected = test.Key.Length > 0 ? [test.Key.ToArray()] : [];
            Assert.Equal(expected, KeysIn(Method.Transact, Nested(TransactRequest.ConditionsFieldNumber, conditionBytes)));
        }
    }

    /// <summary>The key of a condition came first at the library, that of an operation at the node.</summary>
    [Fact]
    public void First_OfATransact_IsTheKeyOfItsFirstOperation()
    {
        var transact = new TransactRequest { Conditions = { new Condition { Key = Utf8("c"), Exists = true } },
            Failure = { new Operation { Delete = new DeleteOperation { Key = Utf8("f") } } } };
        Assert.Equal("f", FirstOf(Method.Transact, transact));
        transact.Success.Add(new Operation { Put = new PutOperation { Key = Utf8("s") } });
        Assert.Equal("s", FirstOf(Method.Transact, transact));
        Assert.Equal("c", FirstOf(
            Method.Transact, new TransactRequest { Conditions = { new Condition { Range = new RangeCondition { Keys = 0 } }, transact.Conditions[0] } }));
        Assert.Equal("k", FirstOf(Method.SetIntersect, new SetIntersectRequest { FacetPrefixes = { Utf8("p") }, Keys = { Utf8("k") } }));
    }

    [Fact]
    public void First_OfMalformedBytes_ThrowsOneKindOfException()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < 5_000; round++)
        {
            var bytes = new byte[random.Next(40)];
            random.NextBytes(bytes);
            foreach (var method in Enum.GetValues<Method>())
            {
                try
                {
                    RequestKeys.First(method, bytes);
                }
                catch (MalformedMessageException)
                {
                    // The expected exception. Any other fails the test.
                }
            }
        }
    }

    [Fact]
    public void RangeOf_ADelete_HasItsRangeOnly()
    {
        var range = new DeleteRangeRequest { Start = Utf8("a/1"), End = Utf8("a/9"), Prefix = Utf8("a/"), All = true };
        var request = range.Clone();
        request.Conditions.Add(new Condition { Key = Utf8("a/2"), Exists = true });
        request.RequestId = new RequestId { Sequence = 1 };
        Assert.Equal(range, RequestParts.RangeOf(request.ToByteArray()));
        Assert.Equal(new DeleteRangeRequest(), RequestParts.RangeOf(default));
    }

    private static ByteString Utf8(string text) => ByteString.CopyFromUtf8(text);

    private static List<ByteString> KeysOf(Method method, IMessage message) => [.. KeysIn(method, message.ToByteArray()).Select(ByteString.CopyFrom)];

    private static List<byte[]> KeysIn(Method method, byte[] request)
    {
        var found = new List<byte[]>();
        var keys = new RequestKeys.Walk(method, request);
        while (keys.MoveNext())
            found.Add(keys.Current.ToArray());
        Assert.Equal(found.Count == 0 ? [] : found[0], RequestKeys.First(method, request).ToArray());
        return found;
    }

    private static string FirstOf(Method method, IMessage message) =>
        System.Text.Encoding.UTF8.GetString(RequestKeys.First(method, message.ToByteString()).Span);

    private static byte[] Nested(int field, byte[] message)
    {
        var bytes = new byte[WireWriter.BytesFieldSize(message.Length)];
        new WireWriter(bytes).BytesField(field, message);
        return bytes;
    }

    // By the definition in the contract: what names no key does not count.
    private static IEnumerable<ByteString> KeysOf(Operation operation) => operation.OperationCase switch
    {
        Operation.OperationOneofCase.Put => Named(operation.Put.Key),
        Operation.OperationOneofCase.Delete => Named(operation.Delete.Key),
        Operation.OperationOneofCase.DeleteRange => [operation.DeleteRange.Start],
        Operation.OperationOneofCase.Increment => Named(operation.Increment.Key),
        Operation.OperationOneofCase.Touch => Named(operation.Touch.Key),
        Operation.OperationOneofCase.SetAdd => Named(operation.SetAdd.Key),
        Operation.OperationOneofCase.SetRemove => Named(operation.SetRemove.Key),
        Operation.OperationOneofCase.Get => Named(operation.Get.Key),
        Operation.OperationOneofCase.Scan => [operation.Scan.Start],
        Operation.OperationOneofCase.SetGet => Named(operation.SetGet.Key),
        _ => [],
    };

    private static IEnumerable<ByteString> KeysOf(Condition condition) => Named(condition.Key);

    private static IEnumerable<ByteString> Named(ByteString key) => key.IsEmpty ? [] : [key];

    private static Operation[] RandomOperations(Random random) =>
        [.. Enumerable.Range(0, random.Next(4)).Select(_ => RandomOperation(random, RandomBytes(random, 0)))];

    private static Operation RandomOperation(Random random, ByteString key) => random.Next(11) switch
    {
        0 => new Operation { Put = new PutOperation { Key = key, Value = RandomBytes(random, 0), Sequence = random.Next(2) == 0 } },
        1 => new Operation { Delete = new DeleteOperation { Key = key } },
        2 => new Operation { DeleteRange = new RangeOperation { Start = key, End = RandomBytes(random, 0) } },
        3 => new Operation { Increment = new IncrementOperation { Key = key, By = -1 } },
        4 => new Operation { Touch = new TouchOperation { Key = key, TtlMs = 1 } },
        5 => new Operation { SetAdd = new SetOperation { Key = key, Member = RandomBytes(random, 1) } },
        6 => new Operation { SetRemove = new SetOperation { Key = key } },
        7 => new Operation { Get = new KeyOperation { Key = key } },
        8 => new Operation { Scan = new RangeOperation { Start = key, Limit = 3 } },
        9 => new Operation { SetGet = new SetOperation { Key = key } },
        _ => new Operation(),
    };

    private static Condition[] RandomConditions(Random random) =>
        [.. Enumerable.Range(0, random.Next(4)).Select(_ => RandomCondition(random, random.Next(3) == 0 ? null : RandomBytes(random, 0)))];

    private static Condition RandomCondition(Random random, ByteString? key)
    {
        var condition = random.Next(4) switch
        {
            0 => new Condition { Exists = true },
            1 => new Condition { ValueEquals = RandomBytes(random, 0) },
            2 => new Condition { SetHas = RandomBytes(random, 1) },
            _ => new Condition { Range = new RangeCondition { End = RandomBytes(random, 0), Keys = 0 } },
        };
        if (key is not null)
            condition.Key = key;
        return condition;
    }

    private static ByteString RandomBytes(Random random, int least)
    {
        var bytes = new byte[random.Next(least, 300)];
        random.NextBytes(bytes);
        return ByteString.CopyFrom(bytes);
    }
}

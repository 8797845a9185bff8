using Google.Protobuf;
using KvCluster.Router.Api;
using KvCluster.V1;
using KvCluster.Wire;
using Xunit.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Router;

/// <summary>The router finds keys in encoded requests without decoding them. They must equal those of the decoded message.</summary>
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
            var write = new WriteRequest();
            for (var count = random.Next(5); count > 0; count--)
                write.Conditions.Add(new Condition { Key = RandomBytes(random, 1), EtagEquals = new V1.Etag { Epoch = 1, Change = 2 } });
            for (var count = random.Next(5); count > 0; count--)
            {
                write.Operations.Add(random.Next(2) == 0
                    ? new Operation { Put = new PutOperation { Key = RandomBytes(random, 1), Value = value } }
                    : new Operation { Delete = new DeleteOperation { Key = RandomBytes(random, 1) } });
            }
            var keys = write.Conditions.Select(condition => condition.Key).Concat(write.Operations.Select(operation => operation.Put?.Key ?? operation.Delete.Key));
            Assert.Equal(keys, KeysOf(Method.Write, write));
        }
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
        Assert.Equal(range, RequestKeys.RangeOf(request.ToByteArray()));
        Assert.Equal(new DeleteRangeRequest(), RequestKeys.RangeOf(default));
    }

    private static ByteString Utf8(string text) => ByteString.CopyFromUtf8(text);

    private static List<ByteString> KeysOf(Method method, IMessage message)
    {
        var bytes = message.ToByteArray();
        var found = new List<ByteString>();
        var keys = new RequestKeys.Walk(method, bytes);
        while (keys.MoveNext())
            found.Add(ByteString.CopyFrom(keys.Current));
        return found;
    }

    private static ByteString RandomBytes(Random random, int least)
    {
        var bytes = new byte[random.Next(least, 300)];
        random.NextBytes(bytes);
        return ByteString.CopyFrom(bytes);
    }
}

using KvCluster.Node.Api.Errors;
using KvCluster.Storage.Encoding;

namespace KvCluster.Tests.Node;

/// <summary>What callers are told of a failure.</summary>
public sealed class ApiErrorsTests
{
    /// <summary>Callers were told that the data is not served, and not that the next call would be answered.</summary>
    [Fact]
    public void Of_DamagedData_SaysThatAnotherReplicaAnswersTheNextCall()
    {
        var error = ApiErrors.Of(new CorruptStoreException("page 108 does not match"))!;
        Assert.Equal("CORRUPT", error.Reason);
        Assert.Contains("is rebuilt from the shard's other replicas, one of which answers when the call is repeated", error.Message, StringComparison.Ordinal);
    }
}

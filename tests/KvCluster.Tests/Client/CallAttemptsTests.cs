using System.Reflection;
using Google.Protobuf;
using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;

namespace KvCluster.Tests.Client;

/// <summary>What is known of a call during its attempts, in an object that other calls use after it.</summary>
public sealed class CallAttemptsTests
{
    private static readonly FieldInfo[] Fields = typeof(CallAttempts).GetFields(BindingFlags.Instance | BindingFlags.NonPublic);

    /// <summary>A call would end with the error of another one, or would not be repeated although it could be.</summary>
    [Fact]
    public void Clear_AfterACallThatSetEverything_LeavesNothingOfIt()
    {
        var runtime = new ClientRuntime(new ManualTime(), static () => 0, TaskCreationOptions.None);
        var call = CallAttempts.Rent(runtime, V1.Method.Put, "k"u8.ToArray(), ByteString.CopyFromUtf8("put"), 1, isIdentified: true, atAnyReplica: true);
        (call.Traceparent, call.Way, call.Place) = ("00-1-1-01", new ReplyWay(ReplyLane.Large, 1), new KeyPlace(new ShardMap([]), 1));
        (call.NoRetry, call.HedgeAfter, call.IsAtEndpoint, call.Attempts) = (true, TimeSpan.FromSeconds(1), true, 1);
        var refusal = CallStatus.Create(StatusCode.DeadlineExceeded, "NO_LEADER", "no leader in time", "no");
        refusal.Details.Add(Any.Pack(new RetryInfo { RetryDelay = Duration.FromTimeSpan(TimeSpan.FromSeconds(1)) }));
        _ = call.Refused(refusal);
        _ = call.Unanswered(new CallAnswer(null, true, "lost", false));
        var unused = new CallAttempts();
        Assert.Empty(Fields.Where(field => Equals(field.GetValue(unused), field.GetValue(call))).Select(static field => field.Name));
        call.Clear();
        Assert.Empty(Fields.Where(field => !Equals(field.GetValue(unused), field.GetValue(call))).Select(static field => field.Name));
    }
}

using KvCluster.ServiceDefaults.Calls;
using KvCluster.Tests.ServiceDefaults.Security;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.ServiceDefaults.Calls;

/// <summary>What gRPC's packages log of calls.</summary>
public sealed class CallLogsTests
{
    [Fact]
    public void Logs_OfCalls_HaveFailuresOfHandlersOnly()
    {
        var lines = new LinesLog();
        using var inner = new OneLog(lines);
        using var logs = new CallLogs(inner);
        var calls = logs.CreateLogger("Grpc.AspNetCore.Server.ServerCallHandler");
        calls.LogInformation("cancelled");
        Assert.False(calls.IsEnabled(LogLevel.Information));
        Assert.Empty(lines.Lines);
        calls.LogError(new InvalidOperationException("a bug"), "failed");
        Assert.Equal("Error: failed", Assert.Single(lines.Lines));
        Assert.Same(lines, logs.CreateLogger("KvCluster.Node"));
    }

    /// <summary>ASP.NET Core makes an activity for each request while this is on.</summary>
    [Fact]
    public void LogOfRequests_IsOff()
    {
        using var inner = new OneLog(new LinesLog());
        using var logs = new CallLogs(inner);
        Assert.False(logs.CreateLogger("Microsoft.AspNetCore.Hosting.Diagnostics").IsEnabled(LogLevel.Critical));
    }

    private sealed class OneLog(ILogger log) : ILoggerFactory
    {
        public void AddProvider(ILoggerProvider provider) => throw new NotSupportedException();

        public ILogger CreateLogger(string categoryName) => log;

        public void Dispose()
        {
        }
    }
}

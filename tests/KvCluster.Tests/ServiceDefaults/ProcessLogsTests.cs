using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Logs;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>What is written to a program's log.</summary>
public sealed class ProcessLogsTests
{
    /// <summary>
    /// Callers that reset their calls as fast as they could caused 30 critical log lines per second: "exceeded the output operations maximum queue
    /// size".
    /// </summary>
    [Fact]
    public void Create_MutesMessagesAboutMistakesOfCallers()
    {
        var settings = SettingsReader.Read([CommonSettings.LogFormat], [], new SettingSources(new Dictionary<string, string>(), new Dictionary<string, string>()));
        using var logs = ProcessLogs.Create(settings);
        Assert.False(logs.CreateLogger("Microsoft.AspNetCore.Server.Kestrel.Http2").IsEnabled(LogLevel.Critical));
        Assert.True(logs.CreateLogger("Microsoft.AspNetCore.Server.Kestrel").IsEnabled(LogLevel.Warning));
    }
}

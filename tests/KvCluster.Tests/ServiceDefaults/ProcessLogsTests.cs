using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Logs;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>What gets into a program's log.</summary>
public sealed class ProcessLogsTests
{
    /// <summary>
    /// Callers that reset their calls as fast as they could put 30 lines a second into the log, as critical: "exceeded the output operations maximum queue size".
    /// </summary>
    [Fact]
    public void Create_OfAProgram_MutesWhatCallersDoWrong()
    {
        var settings = SettingsReader.Read([CommonSettings.LogFormat], [], new SettingSources(new Dictionary<string, string>(), new Dictionary<string, string>()));
        using var logs = ProcessLogs.Create(settings);
        Assert.False(logs.CreateLogger("Microsoft.AspNetCore.Server.Kestrel.Http2").IsEnabled(LogLevel.Critical));
        Assert.True(logs.CreateLogger("Microsoft.AspNetCore.Server.Kestrel").IsEnabled(LogLevel.Warning));
    }
}

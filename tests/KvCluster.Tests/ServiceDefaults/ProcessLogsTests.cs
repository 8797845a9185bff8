using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Hosting;
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
        using var logs = ProcessLogs.Create(SettingsOf());
        Assert.False(logs.CreateLogger("Microsoft.AspNetCore.Server.Kestrel.Http2").IsEnabled(LogLevel.Critical));
        Assert.True(logs.CreateLogger("Microsoft.AspNetCore.Server.Kestrel").IsEnabled(LogLevel.Warning));
    }

    /// <summary>There was no setting, so nobody could have more of the log than information, or less.</summary>
    [Theory]
    [InlineData("trace", LogLevel.Trace, LogLevel.Warning)]
    [InlineData("debug", LogLevel.Debug, LogLevel.Warning)]
    [InlineData("information", LogLevel.Information, LogLevel.Warning)]
    [InlineData("warning", LogLevel.Warning, LogLevel.Warning)]
    [InlineData("error", LogLevel.Error, LogLevel.Error)]
    public void Create_WithALevel_LogsFromThatLevelOn(string setting, LogLevel own, LogLevel webServer)
    {
        using var logs = ProcessLogs.Create(SettingsOf(("log-level", setting)));

        Assert.Equal(own, LeastOf(logs, "KvCluster.Node.NodeHost"));
        Assert.Equal(webServer, LeastOf(logs, "Microsoft.AspNetCore.Server.Kestrel"));
    }

    [Fact]
    public void Create_WithoutALevel_LogsFromInformationOn()
    {
        using var logs = ProcessLogs.Create(SettingsOf());

        Assert.Equal(LogLevel.Information, LeastOf(logs, "KvCluster.Node.NodeHost"));
    }

    private static LogLevel LeastOf(ILoggerFactory logs, string category) => Enum.GetValues<LogLevel>().First(logs.CreateLogger(category).IsEnabled);

    private static Settings SettingsOf(params (string Name, string Text)[] flags) => SettingsReader.Read(
        [CommonSettings.LogFormat, CommonSettings.LogLevel], [],
        new SettingSources(flags.ToDictionary(static flag => flag.Name, static flag => flag.Text), new Dictionary<string, string>()));
}

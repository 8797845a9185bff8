using System.Text.RegularExpressions;
using KvCluster.ServiceDefaults.Configuration;

namespace KvCluster.Tests.Deploy;

/// <summary>The images' Dockerfiles.</summary>
public sealed partial class ImageTests
{
    /// <summary>The images set listen by a variable, which has precedence over a file, so no file could give a container an https address.</summary>
    [Theory]
    [InlineData("node")]
    [InlineData("router")]
    public void Image_SetsNoVariable_ThatAFileMaySet(string image)
    {
        var variables = SettingVariable().Matches(House.House.Read($"deploy/{image}.Dockerfile")).Select(match => match.Value);

        Assert.Equal([CommonSettings.Config.Variable], variables);
    }

    [GeneratedRegex(Setting.VariablePrefix + "[A-Z_]+")]
    private static partial Regex SettingVariable();
}

// A web service with a cache that its processes share: see README.md beside this project.
using KvCluster.Examples;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;

var builder = WebApplication.CreateBuilder(args);
builder.Services.AddKvCluster();
Shop.AddTo(builder.Services);
var program = builder.Build();
Shop.MapTo(program);
await program.RunAsync();
